//! A folder of a test's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An empty folder, which is removed with what is in it.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// With a short path, as the path of a Unix socket has room for 107 bytes, and open to all, as some servers run as a user
    /// of their own.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("gmp-{}-{number}", std::process::id()));
        // Of a process that had this id and was killed.
        let _mostly_not_there = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap_or_else(|refused| panic!("{}: {refused}", path.display()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("it is ours");
        Scratch(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, and returns its path.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        fs::create_dir_all(path.parent().expect("it is in the folder")).expect("the folder is writable");
        fs::write(&path, content).unwrap_or_else(|refused| panic!("{}: {refused}", path.display()));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _a_peer_may_still_write = fs::remove_dir_all(&self.0);
    }
}
