//! Standard error that no process reads.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

/// Makes standard error a pipe that no process reads: the test reads what is printed there, if the pipe is not full already.
pub fn pipe_for_stderr(full: bool) -> File {
    let mut ends = [0; 2];
    // SAFETY: writes two descriptors, which are ours.
    let (read, mut write) = unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    };
    while full && write.write(&[b'.'; 512]).is_ok() {}
    // SAFETY: the end for writing is ours, and blocks from here on.
    unsafe {
        assert_eq!(libc::fcntl(ends[1], libc::F_SETFL, 0), 0);
        assert_eq!(libc::dup2(ends[1], 2), 2);
    }
    read
}

/// From here on writes to standard error don't wait, in each process that has the same open file.
pub fn stderr_does_not_block() {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
}
