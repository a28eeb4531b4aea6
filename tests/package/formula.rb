# Does with a formula what Homebrew does, where Homebrew cannot run: checks and unpacks what the formula
# names, calls its `install` and runs its test.
#
#   ruby formula.rb FORMULA FILES PREFIX
#
# FILES is a folder with the files of the formula's addresses. Libraries are those of the system, so
# that `depends_on` installs nothing; its names are printed.
#
# Sources: Homebrew's documentation of Formula, Resource and Pathname, https://rubydoc.brew.sh.
require "digest"
require "fileutils"
require "pathname"
require "tmpdir"

FORMULA, FILES, PREFIX = ARGV.map { |path| Pathname.new(path).expand_path }

class Pathname
  # Moves files into this folder: paths, or path => new name.
  def install(*sources)
    mkpath
    sources.flatten.each do |source|
      pairs = source.is_a?(Hash) ? source.to_a : [[source, File.basename(source.to_s)]]
      pairs.each { |from, name| FileUtils.mv(from.to_s, (self/name).to_s) }
    end
  end
end

# Something to fetch: the sources or a resource.
class Download
  def url(address = nil)
    @url = address if address
    @url
  end

  def sha256(digest = nil)
    @sha256 = digest if digest
    @sha256
  end

  # Yields in a folder of its own with what was unpacked. Of one folder alone the content counts.
  def stage
    file = FILES/File.basename(@url)
    found = Digest::SHA256.file(file).hexdigest
    raise "#{file}: sha256 #{found}, not #{@sha256}" if found != @sha256

    Dir.mktmpdir do |folder|
      case file.to_s
      when /\.tar\.gz\z/ then run_or_raise("tar", "-xzf", file.to_s, "-C", folder)
      when /\.tar\.zst\z/ then run_or_raise("tar", "--zstd", "-xf", file.to_s, "-C", folder)
      else FileUtils.cp(file, folder)
      end
      inner = Pathname.new(folder).children
      only = inner.one? && inner.first.directory? ? inner.first.to_s : folder
      Dir.chdir(only) { yield Pathname.pwd }
    end
  end
end

def run_or_raise(*command)
  puts "==> #{command.join(" ")}"
  Kernel.system(*command.map(&:to_s)) || raise("failed: #{command.join(" ")}")
end

class Formula
  DOWNLOADS = { nil => Download.new }
  TESTS = []

  class << self
    def desc(text)
      raise "desc is longer than 80 characters" if text.length > 80
    end

    def homepage(address) = address
    def license(name) = name
    def skip_clean(*paths) = paths
    def url(address) = DOWNLOADS[nil].url(address)
    def sha256(digest) = DOWNLOADS[nil].sha256(digest)
    def test(&block) = TESTS << block
    def [](_name) = Struct.new(:opt_prefix).new(Pathname.new("/usr"))

    def resource(name, &block)
      DOWNLOADS[name] = Download.new
      DOWNLOADS[name].instance_eval(&block)
    end

    def depends_on(what)
      name = what.is_a?(Hash) ? what.keys.first : what
      puts "depends on #{name}"
    end
    alias uses_from_macos depends_on
  end

  attr_accessor :buildpath

  def resource(name) = DOWNLOADS.fetch(name)
  def prefix = PREFIX
  def bin = PREFIX/"bin"
  def share = PREFIX/"share"
  def libexec = PREFIX/"libexec"
  def bash_completion = PREFIX/"etc/bash_completion.d"
  def version = DOWNLOADS[nil].url[/-(\d[\d.]*)\.tar\.gz\z/, 1]
  def system(*command) = run_or_raise(*command)

  def std_cmake_args
    ["-DCMAKE_INSTALL_PREFIX=#{PREFIX}", "-DCMAKE_INSTALL_LIBDIR=lib", "-DCMAKE_BUILD_TYPE=Release",
     "-DCMAKE_FIND_FRAMEWORK=LAST", "-DCMAKE_VERBOSE_MAKEFILE=ON",
     "-DFETCHCONTENT_FULLY_DISCONNECTED=ON", "-Wno-dev", "-DBUILD_TESTING=OFF"]
  end

  def shell_output(command)
    output = `#{command}`
    raise "#{command}: #{$CHILD_STATUS}" unless $?.success?

    output
  end

  def assert_match(wanted, text)
    raise "no #{wanted.inspect} in #{text.inspect}" unless text.match?(wanted.is_a?(String) ? Regexp.escape(wanted) : wanted)
  end
end

load FORMULA.to_s
formula = Gpuctl.new
FileUtils.rm_rf(PREFIX)
Formula::DOWNLOADS[nil].stage do |folder|
  formula.buildpath = folder
  formula.install
end
raise "the formula has no test" if Formula::TESTS.empty?

Formula::TESTS.each { |block| formula.instance_eval(&block) }
puts "installed #{formula.version} in #{PREFIX}, and its test passes"
