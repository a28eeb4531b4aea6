// What Abseil uses of Apple's framework: the name of the local time zone. Declared from Apple's
// documentation, because the framework's own headers come only with Xcode.
#ifndef GPUCTL_DEPLOY_MACOS_CFTIMEZONE_H_
#define GPUCTL_DEPLOY_MACOS_CFTIMEZONE_H_

#ifdef __cplusplus
extern "C" {
#endif

typedef const void* CFTypeRef;
typedef const struct __CFString* CFStringRef;
typedef const struct __CFTimeZone* CFTimeZoneRef;
typedef signed long CFIndex;
typedef unsigned int CFStringEncoding;
typedef unsigned char Boolean;
enum { kCFStringEncodingUTF8 = 0x08000100 };

void CFRelease(CFTypeRef object);
CFTimeZoneRef CFTimeZoneCopyDefault(void);
CFStringRef CFTimeZoneGetName(CFTimeZoneRef zone);
CFIndex CFStringGetLength(CFStringRef text);
CFIndex CFStringGetMaximumSizeForEncoding(CFIndex length, CFStringEncoding encoding);
Boolean CFStringGetCString(CFStringRef text, char* buffer, CFIndex size, CFStringEncoding encoding);

#ifdef __cplusplus
}
#endif

#endif  // GPUCTL_DEPLOY_MACOS_CFTIMEZONE_H_
