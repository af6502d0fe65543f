//! A folder that belongs to one test.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A folder that is empty at first. The drop removes it with its content.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder. Its path is short, because the path of a Unix socket has room for 107 bytes. It is open to all users,
    /// because some servers run as a user of their own.
    #[expect(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = std::env::temp_dir().join(format!("gmp-{}-{number}", std::process::id()));
        // A killed process that had the same id can have left the folder behind.
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

    /// Writes a file and returns its path.
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
