//! Paths and directories: the results are those of std's functions, on goroutines and plain threads.

use common::crew::everyone;
use common::room::Room;
use gmp::fs;
use gmp::fs::unix::{DirBuilderExt, DirEntryExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io::ErrorKind::{
    AlreadyExists, DirectoryNotEmpty, InvalidInput, IsADirectory, NotADirectory, NotFound,
};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The property holds for every member of every crew, in a room on each kind of file system.
pub fn in_rooms(property: fn(&Path)) {
    everyone(|crew| {
        for room in Room::of_each_kind() {
            crew.run(move || property(&room));
        }
    });
}

pub fn fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a string with its end.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Fails when bytes differ, or by a wrong kind of error.
#[test]
fn whole_files_are_written_read_and_copied() {
    in_rooms(|room| {
        let bytes = common::talk::pattern(3, 300_000);
        fs::write(room.join("a"), &bytes).unwrap();
        assert!(fs::read(room.join("a")).unwrap() == bytes);
        fs::write(room.join("a"), "shorter").unwrap();
        assert_eq!(fs::read_to_string(room.join("a")).unwrap(), "shorter");
        fs::write(room.join("odd"), b"\xff").unwrap();
        assert_eq!(fs::read_to_string(room.join("odd")).unwrap_err().kind(), std::io::ErrorKind::InvalidData);
        fs::write(room.join("none"), "").unwrap();
        assert!(fs::read(room.join("none")).unwrap().is_empty());

        fs::set_permissions(room.join("a"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(fs::copy(room.join("a"), room.join("b")).unwrap(), 7);
        let copied = fs::metadata(room.join("b")).unwrap();
        assert_eq!((copied.len(), copied.mode() & 0o777), (7, 0o640));
        // A copy onto a longer file.
        fs::write(room.join("long"), &bytes).unwrap();
        fs::copy(room.join("b"), room.join("long")).unwrap();
        assert_eq!(fs::read(room.join("long")).unwrap(), b"shorter");
        assert_eq!(fs::copy(room.join("nobody"), room.join("b")).unwrap_err().kind(), NotFound);
        assert_eq!(fs::read(room.join("b")).unwrap(), b"shorter");
        assert_eq!(fs::copy(room, room.join("c")).unwrap_err().kind(), InvalidInput);
    });
}

/// Fails when the kind of an error is not that of std's.
#[test]
fn what_can_not_be_is_said_as_std_says_it() {
    in_rooms(|room| {
        fs::write(room.join("file"), "x").unwrap();
        assert_eq!(fs::read(room.join("nobody")).unwrap_err().kind(), NotFound);
        assert_eq!(fs::read(room.join("file/below")).unwrap_err().kind(), NotADirectory);
        assert_eq!(fs::read(room).unwrap_err().kind(), IsADirectory);
        assert_eq!(fs::write(room, "x").unwrap_err().kind(), IsADirectory);
        assert_eq!(fs::read("a\0b").unwrap_err().kind(), InvalidInput);
        assert_eq!(fs::read_dir(room.join("file")).unwrap_err().kind(), NotADirectory);
        assert_eq!(fs::read_dir(room.join("nobody")).unwrap_err().kind(), NotFound);
        assert_eq!(fs::create_dir(room.join("file")).unwrap_err().kind(), AlreadyExists);
        assert_eq!(fs::create_dir(room.join("no/where")).unwrap_err().kind(), NotFound);
        assert!(fs::create_dir_all(room.join("file/below")).is_err());
        assert_eq!(fs::remove_file(room.join("nobody")).unwrap_err().kind(), NotFound);
        assert_eq!(fs::remove_file(room).unwrap_err().kind(), IsADirectory);
        assert_eq!(fs::remove_dir(room).unwrap_err().kind(), DirectoryNotEmpty);
        assert_eq!(fs::remove_dir(room.join("file")).unwrap_err().kind(), NotADirectory);
        assert_eq!(fs::metadata(room.join("nobody")).unwrap_err().kind(), NotFound);
        assert_eq!(fs::read_link(room.join("file")).unwrap_err().kind(), InvalidInput);
        assert_eq!(fs::canonicalize(room.join("nobody")).unwrap_err().kind(), NotFound);
        assert_eq!(fs::hard_link(room.join("nobody"), room.join("b")).unwrap_err().kind(), NotFound);
        assert!(!fs::exists(room.join("nobody")).unwrap());
        assert_eq!(fs::exists(room.join("file/below")).unwrap_err().kind(), NotADirectory);
    });
}

/// Fails when a directory is missing, or is not removed.
#[test]
fn directories_are_made_and_removed() {
    in_rooms(|room| {
        let deep = room.join("a/b/c/d");
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir_all(&deep).unwrap();
        assert!(fs::metadata(&deep).unwrap().is_dir());
        let mut builder = fs::DirBuilder::new();
        assert_eq!(builder.create(&deep).unwrap_err().kind(), AlreadyExists);
        builder.recursive(true).mode(0o750).create(deep.join("e/f")).unwrap();
        assert_eq!(fs::metadata(deep.join("e/f")).unwrap().mode() & 0o777, 0o750);

        fs::write(deep.join("file"), "").unwrap();
        fs::create_dir(room.join("kept")).unwrap();
        fs::write(room.join("kept/file"), "").unwrap();
        symlink(room.join("kept"), deep.join("link")).unwrap();
        fs::remove_dir_all(room.join("a")).unwrap();
        assert_eq!(names(room), BTreeSet::from(["kept".into()]));
        // The target of a link is still there.
        assert_eq!(names(&room.join("kept")), BTreeSet::from(["file".into()]));
        fs::remove_file(room.join("kept/file")).unwrap();
        fs::remove_dir(room.join("kept")).unwrap();
        assert!(names(room).is_empty());
    });
}

/// A call for each level would take more stack than a goroutine has. Fails by an overflow of the stack, or when a part of the
/// tree is left.
#[test]
fn a_tree_of_many_levels_is_removed() {
    in_rooms(|room| {
        let mut path = room.join("tree");
        (0..600).for_each(|_| path.push("a"));
        fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        fifo(&path.join("fifo"));
        symlink(room, path.join("link")).unwrap();
        fs::create_dir(path.join("beside")).unwrap();
        fs::remove_dir_all(room.join("tree")).unwrap();
        assert!(names(room).is_empty());
    });
}

/// The path is that of a link, of a file, or of nothing. Fails when the answer is not std's.
#[test]
fn what_is_no_directory_is_not_removed_as_one() {
    in_rooms(|room| {
        fs::create_dir_all(room.join("kept/inner")).unwrap();
        symlink("kept", room.join("link")).unwrap();
        fs::write(room.join("file"), "").unwrap();
        assert_eq!(fs::remove_dir_all(room.join("file")).unwrap_err().kind(), NotADirectory);
        assert_eq!(fs::remove_dir_all(room.join("nobody")).unwrap_err().kind(), NotFound);
        assert_eq!(fs::remove_dir_all("a\0b").unwrap_err().kind(), InvalidInput);
        fs::remove_dir_all(room.join("link")).unwrap();
        assert_eq!(names(room), BTreeSet::from(["file".into(), "kept".into()]));
        assert_eq!(names(&room.join("kept")), BTreeSet::from(["inner".into()]));
    });
}

/// The directory has more entries than one batch, of each type. Fails when an entry is lost, is returned twice, or has the
/// wrong type.
#[test]
fn every_entry_of_a_directory_is_told_once() {
    in_rooms(|room| {
        let files: Vec<_> = (0..1500).map(|number| format!("file-{number}")).collect();
        for name in &files {
            std::fs::write(room.join(name), "").unwrap();
        }
        fs::create_dir(room.join("dir")).unwrap();
        symlink("nowhere", room.join("link")).unwrap();
        fifo(&room.join("fifo"));
        let mut seen = BTreeSet::new();
        for entry in fs::read_dir(room).unwrap() {
            let entry = entry.unwrap();
            let (name, kind) = (entry.file_name().into_string().unwrap(), entry.file_type().unwrap());
            assert_eq!(entry.path(), room.join(&name));
            assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
            let fits = match name.as_str() {
                "dir" => kind.is_dir(),
                "link" => kind.is_symlink(),
                "fifo" => kind.is_fifo(),
                _ => kind.is_file(),
            };
            assert!(fits, "{name}: {kind:?}");
            assert!(seen.insert(name));
        }
        let others = ["dir", "link", "fifo"].map(str::to_owned);
        assert_eq!(seen, files.into_iter().chain(others).collect());

        let mut entries = fs::read_dir(room.join("dir")).unwrap();
        assert!(entries.next().is_none() && entries.next().is_none());
    });
}

/// Fails when a link leads to a wrong file, or counts as its target.
#[test]
fn links_lead_where_they_should() {
    in_rooms(|room| {
        fs::write(room.join("file"), "one").unwrap();
        fs::hard_link(room.join("file"), room.join("hard")).unwrap();
        assert_eq!(fs::metadata(room.join("hard")).unwrap().nlink(), 2);
        assert_eq!(
            fs::metadata(room.join("hard")).unwrap().ino(),
            fs::metadata(room.join("file")).unwrap().ino()
        );
        fs::remove_file(room.join("file")).unwrap();
        assert_eq!(fs::read(room.join("hard")).unwrap(), b"one");

        symlink("hard", room.join("soft")).unwrap();
        assert_eq!(fs::read_link(room.join("soft")).unwrap(), Path::new("hard"));
        assert!(fs::symlink_metadata(room.join("soft")).unwrap().is_symlink());
        assert!(fs::metadata(room.join("soft")).unwrap().is_file());
        let whole = fs::canonicalize(room).unwrap().join("hard");
        assert_eq!(fs::canonicalize(room.join("./soft")).unwrap(), whole);
        assert_eq!(symlink("x", room.join("soft")).unwrap_err().kind(), AlreadyExists);

        symlink("nowhere", room.join("broken")).unwrap();
        assert!(!fs::exists(room.join("broken")).unwrap());
        assert_eq!(fs::read(room.join("broken")).unwrap_err().kind(), NotFound);
        symlink("round", room.join("round")).unwrap();
        assert_eq!(fs::read(room.join("round")).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(!fs::File::open(room.join("hard")).unwrap().is_terminal());
        if let Ok(terminal) = fs::File::options().read(true).write(true).open("/dev/ptmx") {
            assert!(terminal.is_terminal());
        }
        assert_eq!(gmp::fs::unix::chroot(room.join("hard")).unwrap_err().kind(), NotADirectory);
        gmp::fs::unix::lchown(room.join("broken"), None, None).unwrap();
        gmp::fs::unix::chown(room.join("hard"), None, None).unwrap();
        assert_eq!(gmp::fs::unix::chown(room.join("broken"), None, None).unwrap_err().kind(), NotFound);
    });
}

/// Fails when a name leads to the old file, or to no file.
#[test]
fn a_rename_replaces() {
    in_rooms(|room| {
        fs::write(room.join("new"), "new").unwrap();
        fs::write(room.join("old"), "old").unwrap();
        let open = fs::File::open(room.join("old")).unwrap();
        fs::rename(room.join("new"), room.join("old")).unwrap();
        assert_eq!(names(room), BTreeSet::from(["old".into()]));
        assert_eq!(fs::read(room.join("old")).unwrap(), b"new");
        // A handle to the replaced file still reads that file.
        assert_eq!(std::io::read_to_string(&open).unwrap(), "old");
        fs::create_dir_all(room.join("dir/inner")).unwrap();
        fs::rename(room.join("dir"), room.join("other")).unwrap();
        assert!(fs::exists(room.join("other/inner")).unwrap());
        assert_eq!(fs::rename(room.join("old"), room.join("other")).unwrap_err().kind(), IsADirectory);
        assert_eq!(fs::rename(room.join("nobody"), room.join("x")).unwrap_err().kind(), NotFound);
    });
}

/// Fails when permissions are not kept. The test makes no forbidden calls: root may make them.
#[test]
fn permissions_are_set_and_told() {
    in_rooms(|room| {
        let path = room.join("file");
        fs::write(&path, "").unwrap();
        for mode in [0o600, 0o444, 0o755] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let told = fs::metadata(&path).unwrap().permissions();
            assert_eq!((told.mode() & 0o777, told.readonly()), (mode, mode & 0o222 == 0));
        }
        let mut read_only = fs::metadata(&path).unwrap().permissions();
        read_only.set_readonly(true);
        fs::set_permissions(&path, read_only).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o555);
        let nobody = fs::set_permissions(room.join("nobody"), fs::Permissions::from_mode(0o600));
        assert_eq!(nobody.unwrap_err().kind(), NotFound);
    });
}
