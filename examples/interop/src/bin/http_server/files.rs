//! The files below a folder.
//!
//! A name can lead out of the folder by a symbolic link, and another process can put a link there at any time. So the server
//! checks a file when it is open: the path that the kernel tells must be below the folder. A link that stays inside is
//! followed.

use crate::body::Body;
use crate::request::Request;
use crate::response::Response;
use gmp::fs::unix::{MetadataExt, OpenOptionsExt};
use gmp::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

pub struct Files {
    root: PathBuf,
    writable: bool,
    uploads: AtomicU64,
}

impl Files {
    pub fn new(root: &Path, writable: bool) -> io::Result<Self> {
        Ok(Files { root: root.canonicalize()?, writable, uploads: AtomicU64::new(0) })
    }

    pub fn answer(&self, request: &Request, body: &mut Body) -> Result<Response, Response> {
        let segments = &request.segments;
        match request.method {
            // Hidden files belong to the server: they hold uploads under way.
            _ if segments.iter().any(|segment| segment.starts_with('.')) => Err(not_found()),
            "GET" | "HEAD" => self.get(request, segments),
            "PUT" if self.writable => self.put(segments, body),
            "PUT" | "POST" | "DELETE" | "OPTIONS" | "PATCH" | "TRACE" | "CONNECT" => {
                let allowed = if self.writable { "GET, HEAD, PUT" } else { "GET, HEAD" };
                Err(Response::text(405, "not with files").with("Allow", allowed))
            }
            _ => Err(Response::text(501, "no such method")),
        }
    }

    /// Opens a file or a folder below the root.
    fn open(&self, segments: &[String], flags: i32) -> Result<File, Response> {
        let mut path = self.root.clone();
        path.extend(segments);
        // `O_NONBLOCK`: the open does not wait for the writer of a FIFO.
        let opened =
            OpenOptions::new().read(true).custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY).open(&path);
        let file = opened.map_err(|refused| match refused.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => refused.into(),
            _ => not_found(),
        })?;
        match fs::read_link(by_descriptor(&file)) {
            Ok(real) if real.starts_with(&self.root) => Ok(file),
            _ => Err(not_found()),
        }
    }

    fn get(&self, request: &Request, segments: &[String]) -> Result<Response, Response> {
        let is_folder = request.path.ends_with('/');
        let index = is_folder.then(|| "index.html".to_owned());
        let segments: Vec<_> = segments.iter().cloned().chain(index).collect();
        let file = self.open(&segments, 0)?;
        let about = file.metadata()?;
        // An index that is a folder does not count.
        if about.is_dir() && !is_folder {
            // Two slashes at the beginning would name another host.
            let location = format!("/{}/{}", request.path.trim_matches('/'), request.query);
            return Err(Response::text(301, "it is a folder").with("Location", location));
        }
        if !about.is_file() {
            return Err(not_found());
        }
        let (tag, modified) = validators(&about);
        let date = httpdate::fmt_http_date(modified);
        let found = if is_unchanged(request, &tag, modified) {
            Response::empty(304)
        } else {
            let kind = segments.last().map_or("", |name| content_type(name));
            match part(request, &tag, &date, about.len()) {
                Part::Whole => Response::file(200, file, 0..about.len()),
                Part::Of(part) => {
                    let range = format!("bytes {}-{}/{}", part.start, part.end - 1, about.len());
                    Response::file(206, file, part).with("Content-Range", range)
                }
                Part::None => {
                    let range = format!("bytes */{}", about.len());
                    return Err(Response::text(416, "there is no such part").with("Content-Range", range));
                }
            }
            .with("Content-Type", kind)
        };
        Ok(found.with("ETag", tag).with("Last-Modified", date).with("Accept-Ranges", "bytes"))
    }

    /// Writes a file beside the target, and renames it when it is complete.
    fn put(&self, segments: &[String], body: &mut Body) -> Result<Response, Response> {
        let (name, folder) = segments.split_last().ok_or_else(not_found)?;
        // The path goes through the descriptor, whose folder stays the one that was checked.
        let folder = self.open(folder, libc::O_DIRECTORY)?;
        let path = by_descriptor(&folder);
        let target = path.join(name);
        let (mut file, mut upload) = self.upload(&path)?;
        let mut piece = vec![0; 64 << 10];
        loop {
            match body.read(&mut piece)? {
                0 => break,
                got => file.write_all(&piece[..got])?,
            }
        }
        let status = if target.exists() { 204 } else { 201 };
        fs::rename(&upload.path, &target).map_err(|refused| match refused.kind() {
            ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::DirectoryNotEmpty
            | ErrorKind::AlreadyExists => Response::text(409, "it is a folder"),
            _ => refused.into(),
        })?;
        upload.renamed = true;
        Ok(Response::empty(status))
    }

    /// Makes a file in `folder` that only this upload uses. Other processes can serve the folder, and leave files behind.
    fn upload(&self, folder: &Path) -> io::Result<(File, Upload)> {
        let process = std::process::id();
        loop {
            let number = self.uploads.fetch_add(1, Relaxed);
            let path = folder.join(format!(".{process}-{number}.part"));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                // The file belongs to this upload only from here on: the upload must not remove a file of another process.
                Ok(file) => return Ok((file, Upload { path, renamed: false })),
                Err(taken) if taken.kind() == ErrorKind::AlreadyExists => {}
                Err(refused) => return Err(refused),
            }
        }
    }
}

/// A file that the drop removes unless it was renamed.
struct Upload {
    path: PathBuf,
    renamed: bool,
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.renamed {
            let _it_is_gone_already = fs::remove_file(&self.path);
        }
    }
}

fn by_descriptor(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

fn not_found() -> Response {
    Response::text(404, "there is no such file")
}

/// Returns the tag, and the time of the last change in whole seconds.
fn validators(about: &Metadata) -> (String, SystemTime) {
    let tag = format!("\"{:x}-{:x}-{:x}\"", about.mtime(), about.mtime_nsec(), about.len());
    (tag, in_a_date(about.mtime()))
}

/// The last second of the year 9999. HTTP has no date after it.
const LAST_SECOND: u64 = 253_402_300_799;

/// Returns the time of a change that is `seconds` after 1970, or the nearest time that has a date.
fn in_a_date(seconds: i64) -> SystemTime {
    let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST_SECOND);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Returns `true` if the client has the file already. If the request has a tag, the tag decides.
fn is_unchanged(request: &Request, tag: &str, modified: SystemTime) -> bool {
    if request.one("if-none-match").is_some() {
        let same =
            |known: &[u8]| known == b"*" || known.strip_prefix(b"w/").unwrap_or(known) == tag.as_bytes();
        return request.tokens("if-none-match").any(|known| same(&known));
    }
    let since = request.one("if-modified-since").and_then(|date| str::from_utf8(date).ok());
    since.and_then(|date| httpdate::parse_http_date(date).ok()).is_some_and(|since| modified <= since)
}

enum Part {
    Whole,
    Of(Range<u64>),
    None,
}

/// Returns the requested part. If the request has no single range of bytes, or names another version, the part is the whole.
fn part(request: &Request, tag: &str, date: &str, length: u64) -> Part {
    let other_version = |known: &[u8]| known != tag.as_bytes() && known != date.as_bytes();
    if request.method != "GET" || request.one("if-range").is_some_and(other_version) {
        return Part::Whole;
    }
    let range = request.one("range").and_then(|range| str::from_utf8(range).ok());
    let Some((first, last)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return Part::Whole;
    };
    let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too large is beyond every end.
        true if !digits.is_empty() => Some(digits.parse().unwrap_or(u64::MAX)),
        _ => None,
    };
    let (start, end) = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => (first, last.saturating_add(1).min(length)),
        (Some(first), None) if last.is_empty() => (first, length),
        (None, Some(last)) if first.is_empty() => (length.saturating_sub(last), length),
        _ => return Part::Whole,
    };
    if start < end { Part::Of(start..end) } else { Part::None }
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "txt" | "md" => "text/plain; charset=utf-8",
        "css" => "text/css",
        "js" => "text/javascript",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when the function that formats the date panics: file systems know later years.
    #[test]
    fn each_time_of_a_file_has_a_date() {
        for (seconds, date) in [
            (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (-1, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1, "Thu, 01 Jan 1970 00:00:01 GMT"),
            (253_402_300_799, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (253_402_300_800, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(httpdate::fmt_http_date(in_a_date(seconds)), date);
        }
    }
}
