//! A directory of a test's own.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::{env, fs, process};

/// The directory is removed, with all in it, when this is dropped.
pub struct Room(PathBuf);

impl Room {
    /// Makes a directory in the one for temporary files, which is on a disk, mostly.
    pub fn new() -> Self {
        Room::within(&env::temp_dir())
    }

    /// Makes one on each kind of file system that there is: on a disk, and in memory.
    pub fn of_each_kind() -> Vec<Room> {
        let memory = Path::new("/dev/shm");
        [env::temp_dir()]
            .iter()
            .map(PathBuf::as_path)
            .chain(memory.is_dir().then_some(memory))
            .map(Room::within)
            .collect()
    }

    fn within(folder: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = folder.join(format!("gmp-test-{}-{}", process::id(), COUNT.fetch_add(1, SeqCst)));
        fs::create_dir(&path).expect("the folder takes another one");
        Room(path)
    }
}

impl Default for Room {
    fn default() -> Self {
        Room::new()
    }
}

impl Deref for Room {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // Removes as much as can be removed.
        let _removed = fs::remove_dir_all(&self.0);
    }
}
