//! From a request's path to a file below the root.

use gmp::fs::{self, File, OpenOptions};
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The folder that is served, without symbolic links in its path.
pub struct Root(PathBuf);

/// An open file, with its length and type.
pub struct Page {
    pub file: File,
    pub length: u64,
    pub kind: &'static str,
}

/// What a path leads to.
pub enum Found {
    Page(Page),
    /// A folder whose path was given without its last slash: relative links on its page would lead elsewhere.
    Folder,
    Nothing,
    /// The path leads out of the root.
    Outside,
    /// The text is no path.
    Malformed,
}

impl Root {
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        fs::read_dir(&path)?;
        Ok(Root(path))
    }

    /// Finds the file or folder to which `target`, a request's path and query, leads.
    pub fn find(&self, target: &str) -> io::Result<Found> {
        let path = target.split('?').next().expect("the first part is there, if empty");
        let Some(decoded) = decode(path) else { return Ok(Found::Malformed) };
        let mut at = self.0.clone();
        // After the decoding: an encoded slash separates, too.
        for part in decoded.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => return Ok(Found::Outside),
                name => at.push(OsStr::from_bytes(name)),
            }
        }
        match self.open_below(&at) {
            Ok(Found::Folder) if decoded.ends_with(b"/") => match self.open_below(&at.join("index.html")) {
                Ok(Found::Folder) => Ok(Found::Nothing),
                found => found,
            },
            // A name of a file, and then a slash.
            Ok(Found::Page(_)) if decoded.ends_with(b"/") => Ok(Found::Nothing),
            found => found,
        }
    }

    fn open_below(&self, path: &Path) -> io::Result<Found> {
        // Opening a FIFO without a writer would block.
        let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
            Ok(file) => file,
            Err(refused) => {
                return match refused.raw_os_error() {
                    Some(
                        libc::ENOENT
                        | libc::ENOTDIR
                        | libc::ENAMETOOLONG
                        | libc::EACCES
                        | libc::ELOOP
                        | libc::ENXIO,
                    ) => Ok(Found::Nothing),
                    _ => Err(refused),
                };
            }
        };
        // The true path of the file, read from the open file, so that no link can be changed in between.
        let in_truth = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if !in_truth.starts_with(&self.0) {
            return Ok(Found::Outside);
        }
        let metadata = file.metadata()?;
        Ok(match metadata.file_type() {
            kind if kind.is_dir() => Found::Folder,
            kind if kind.is_file() => Found::Page(Page { file, length: metadata.len(), kind: kind_of(path) }),
            _ => Found::Nothing,
        })
    }
}

/// Decodes a path. `None` if it does not begin with a slash, has an invalid escape, or a byte that no path has.
fn decode(path: &str) -> Option<Vec<u8>> {
    let mut rest = path.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let [first, after @ ..] = rest {
        (*first != b'%' || after.len() >= 2).then_some(())?;
        let (byte, after) = match first {
            b'%' => {
                let digit = |at: usize| char::from(after[at]).to_digit(16);
                ((digit(0)? << 4 | digit(1)?) as u8, &after[2..])
            }
            plain => (*plain, after),
        };
        (byte != 0).then(|| decoded.push(byte))?;
        rest = after;
    }
    decoded.starts_with(b"/").then_some(decoded)
}

fn kind_of(path: &Path) -> &'static str {
    match path.extension().and_then(OsStr::to_str) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("txt" | "md" | "rs") => "text/plain; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("woff2") => "font/woff2",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}
