"""Commands in the root directory of another Debian release, which `./test` made."""

# chroot would do, but in it Linux refuses the namespaces that some tests make. The old root is then
# mounted where the working directory is.
ENTER = r"""
mount --make-rprivate /
mount --bind "$0" "$0"
cd "$0"
mount --rbind /proc proc
mount --rbind /dev dev
pivot_root . .
umount -l .
cd /
exec "$@"
"""


def inside(root, *command, **env):
    """The command that runs `command` in `root`, with /proc, /dev and nothing of the environment but
    `env`. It needs root and util-linux."""
    variables = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
                 "CCACHE_DIR": "/ccache", **env}
    return ["unshare", "-m", "sh", "-euc", ENTER, root, "env", "-i",
            *("%s=%s" % item for item in variables.items()), *command]
