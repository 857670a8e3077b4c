//! A small disk of its own: a tmpfs in a mount namespace that a shell keeps open.
//!
//! The folder is reached through `/proc/<shell>/root`, so nothing is mounted where others could see it, and the disk is
//! gone with the shell, however the test ends. Needs root, or user namespaces.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A mounted tmpfs.
pub struct SmallDisk {
    shell: Child,
    says: ChildStdin,
    hears: BufReader<ChildStdout>,
    /// Where it is mounted, as the shell sees it.
    mounted: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts so many MiB.
    pub fn of_mib(mib: u64) -> Self {
        let options = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
        let mounted = tempfile::tempdir().unwrap();
        let mut shell = Command::new("unshare")
            .args([options, "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this test needs unshare: apt-get install util-linux");
        let says = shell.stdin.take().unwrap();
        let hears = BufReader::new(shell.stdout.take().unwrap());
        let mut disk = Self { shell, says, hears, mounted };
        let here = disk.mounted.path().display().to_string();
        disk.tell(&format!("mount -t tmpfs -o size={mib}m,mode=0700 tmpfs {here}"));
        disk
    }

    /// The disk's folder, as everybody sees it.
    pub fn path(&self) -> PathBuf {
        let inside = self.mounted.path().strip_prefix("/").unwrap();
        Path::new("/proc").join(self.shell.id().to_string()).join("root").join(inside)
    }

    /// Takes all space that is left, but for so many KiB, with a file.
    pub fn fill_but_kib(&self, kib: u64) {
        let free = rustix::fs::statvfs(self.path()).unwrap();
        let bytes = free.f_bavail * free.f_frsize - (kib << 10);
        let ballast = std::fs::File::create(self.ballast()).unwrap();
        rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
    }

    /// Removes that file.
    pub fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// From now on nothing can be made, removed or opened for writing. (The kernel lets no file system become read-only
    /// while a file is open for writing, so a read-only mount of it is moved over it, in one step: only files already
    /// open can still grow.)
    pub fn become_read_only(&mut self) {
        let aside = tempfile::tempdir().unwrap();
        let (here, aside) = (self.mounted.path().display().to_string(), aside.path().display().to_string());
        self.tell(&format!("mount --bind {here} {aside} && mount -o remount,bind,ro {aside}"));
        // In a user namespace mount complains of something that comes after the move: what counts is what it has done.
        self.tell(&format!("mount --move {aside} {here} 2>/dev/null || true"));
        let flags = rustix::fs::statvfs(self.path()).unwrap().f_flag;
        assert!(flags.contains(rustix::fs::StatVfsMountFlags::RDONLY), "it is not read-only: {flags:?}");
    }

    /// Makes that mount writable.
    pub fn become_writable(&mut self) {
        let here = self.mounted.path().display().to_string();
        self.tell(&format!("mount -o remount,bind,rw {here}"));
    }

    /// Has the shell do this, and waits for it.
    fn tell(&mut self, act: &str) {
        writeln!(self.says, "if {act}; then echo done; else echo failed; fi").unwrap();
        let mut answer = String::new();
        self.hears.read_line(&mut answer).unwrap();
        assert_eq!(
            answer.trim_end(),
            "done",
            "`{act}` in a mount namespace; this test needs root, or user namespaces (sysctl user.max_user_namespaces)"
        );
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
