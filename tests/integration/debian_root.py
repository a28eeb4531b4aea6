"""Commands in the root directory of another Debian release, which `./test` made."""


def inside(root, *command, **env):
    """The command that runs `command` in `root`, with /proc, /dev and nothing of the environment but
    `env`. It needs root and util-linux."""
    # The root is a mount of its own, as unshare within it wants.
    script = ("mount --make-rprivate / && mount --bind \"$0\" \"$0\" && mount --rbind /proc \"$0/proc\" && "
              "mount --rbind /dev \"$0/dev\" && exec chroot \"$0\" \"$@\"")
    variables = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                 "CCACHE_DIR": "/ccache", **env}
    return ["unshare", "-m", "sh", "-c", script, root, "env", "-i",
            *("%s=%s" % item for item in variables.items()), *command]
