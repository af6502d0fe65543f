//! Errors that say what the system refused, why, and by which limit.

use std::error::Error;
use std::{fmt, io};

/// Returns an error of the same kind that says what was attempted; the kernel's own error is its source.
pub(crate) fn refused(attempt: &str, cause: io::Error) -> io::Error {
    let limit = match cause.raw_os_error() {
        Some(libc::EMFILE) => open_files_limit(),
        Some(libc::ENFILE) => Some("the limit is the whole system's, fs.file-max".to_owned()),
        Some(libc::ENOSPC) => Some("the limit is the user's, fs.epoll.max_user_watches".to_owned()),
        _ => None,
    };
    io::Error::new(cause.kind(), Refused { attempt: attempt.to_owned(), cause, limit })
}

fn open_files_limit() -> Option<String> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local of the type that the call fills.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (got == 0).then(|| {
        format!("this process may have {} open (RLIMIT_NOFILE, at most {})", limit.rlim_cur, limit.rlim_max)
    })
}

#[derive(Debug)]
struct Refused {
    attempt: String,
    cause: io::Error,
    limit: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.attempt, self.cause)?;
        self.limit.iter().try_for_each(|limit| write!(f, "; {limit}"))
    }
}

impl Error for Refused {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(errno: i32) -> String {
        refused("open a door", io::Error::from_raw_os_error(errno)).to_string()
    }

    #[test]
    fn the_text_names_the_attempt_the_cause_and_the_limit() {
        assert_eq!(text(libc::EEXIST), "cannot open a door: File exists (os error 17)");
        for (errno, limit) in [
            (libc::EMFILE, "RLIMIT_NOFILE"),
            (libc::ENFILE, "fs.file-max"),
            (libc::ENOSPC, "fs.epoll.max_user_watches"),
        ] {
            let text = text(errno);
            assert!(text.starts_with("cannot open a door: ") && text.contains(limit), "{text}");
        }
    }

    #[test]
    fn the_kernels_error_is_the_source_and_gives_the_kind() {
        let err = refused("open a door", io::Error::from_raw_os_error(libc::EEXIST));
        assert_eq!(err.kind(), io::ErrorKind::AlreadyExists);
        let source = err.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.and_then(io::Error::raw_os_error), Some(libc::EEXIST));
    }
}
