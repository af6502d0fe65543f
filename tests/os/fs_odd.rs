//! Special files: FIFOs and devices, at which calls wait for the other end; and the effects of signals and odd handles.

use super::fs::fifo;
use common::crew::everyone;
use common::room::Room;
use common::{child, runtime, until, watched};
use gmp::Runtime;
use gmp::fs::unix::{FileExt, OpenOptionsExt};
use gmp::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// With a line of one turn, many goroutines wait for the other end of a FIFO: to open it, to read it and to write it. Fails by
/// a hang.
#[test]
fn fifos_do_not_wait_in_line() {
    const COUNT: usize = 20;
    for procs in [1, 4] {
        watched(procs, || {
            let builder = Runtime::builder().procs(procs).max_file_calls(1);
            // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
            let (rt, room) = (unsafe { builder.build() }.unwrap(), Arc::new(Room::new()));
            (0..2 * COUNT).for_each(|number| fifo(&room.join(number.to_string())));
            let readers: Vec<_> = (0..2 * COUNT)
                .map(|number| {
                    let room = Arc::clone(&room);
                    rt.go(move || {
                        let path = room.join(number.to_string());
                        if number < COUNT {
                            return fs::read_to_string(path).unwrap();
                        }
                        let (mut file, mut text) = (File::open(path).unwrap(), String::new());
                        file.read_to_string(&mut text).unwrap();
                        text
                    })
                })
                .collect();
            let calm = Arc::clone(&room);
            assert!(rt.go(move || fs::exists(calm.join("0")).unwrap()).join().unwrap());
            // The writers begin when the readers wait for bytes.
            let writers: Vec<_> = (0..2 * COUNT)
                .map(|number| {
                    let room = Arc::clone(&room);
                    rt.go(move || {
                        let mut file =
                            OpenOptions::new().write(true).open(room.join(number.to_string())).unwrap();
                        file.write_all(b"some ").unwrap();
                        gmp::time::sleep(Duration::from_millis(5));
                        assert!(fs::exists(room.join("1")).unwrap());
                        // More bytes than the pipe takes.
                        file.write_all("x".repeat(100_000).as_bytes()).unwrap();
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            for reader in readers {
                let text = reader.join().unwrap();
                assert!(text.len() == 100_005 && text.starts_with("some x"));
            }
        });
    }
}

/// Fails when the answer is not std's.
#[test]
fn a_fifo_has_no_positions() {
    everyone(|crew| {
        crew.run(|| {
            let room = Room::new();
            fifo(&room.join("fifo"));
            // Opens both ends, so that the open does not wait.
            let both = OpenOptions::new().read(true).write(true).open(room.join("fifo")).unwrap();
            (&both).write_all(b"hello").unwrap();
            assert_eq!(both.read_at(&mut [0; 5], 0).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
            assert_eq!((&both).seek(SeekFrom::Start(0)).unwrap_err().raw_os_error(), Some(libc::ESPIPE));
            let mut bytes = [0; 9];
            assert_eq!((&both).read(&mut bytes).unwrap(), 5);
            assert_eq!(&bytes[..5], b"hello");
            let mut waits_not = OpenOptions::new();
            waits_not.read(true).custom_flags(libc::O_NONBLOCK);
            let reader = waits_not.open(room.join("fifo")).unwrap();
            assert_eq!((&reader).read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
            drop(both);
            assert_eq!((&reader).read(&mut bytes).unwrap(), 0);
        });
    });
}

/// Fails when the descriptor is closed while the reader uses it; by a hang when the descriptor stays open.
#[test]
fn the_last_owner_of_a_file_closes_it() {
    everyone(|crew| {
        let room = Room::new();
        fifo(&room.join("fifo"));
        let both = std::fs::File::options().read(true).write(true).open(room.join("fifo")).unwrap();
        let file = Arc::new(File::from(both.try_clone().unwrap()));
        let number = file.as_raw_fd();
        let reads = {
            let file = Arc::clone(&file);
            crew.go(move || {
                let mut bytes = [0; 5];
                (&*file).read_exact(&mut bytes).unwrap();
                // SAFETY: no pointers.
                assert!(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0);
                let file = Arc::into_inner(file).unwrap();
                drop(file);
                bytes
            })
        };
        until(|| Arc::strong_count(&file) == 2);
        drop(file);
        (&both).write_all(b"hello").unwrap();
        assert_eq!(reads.join(), *b"hello");
        drop(both);
        // The kernel refuses a writer that does not wait once no descriptor reads the FIFO. A child that another test starts
        // has a copy of the descriptor for a moment.
        let mut writes = OpenOptions::new();
        writes.write(true).custom_flags(libc::O_NONBLOCK);
        until(|| writes.open(room.join("fifo")).is_err_and(|e| e.raw_os_error() == Some(libc::ENXIO)));
    });
}

/// How often the handler of SIGUSR2 was called.
static CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counts(_: libc::c_int) {
    CALLS.fetch_add(1, SeqCst);
}

/// Returns `true` if this thread of the process is inside read(2); or may be, if the kernel does not say.
fn reads(thread: i32) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    !call.is_ok_and(|call| call.split(' ').next() != Some(&libc::SYS_read.to_string()))
}

/// The system calls that the handler interrupts are not restarted. Each signal finds the thread inside its read. Fails when a
/// read gives up at a signal, or reports it in any other way.
#[test]
fn a_signal_is_no_end() {
    // The action belongs to the whole process.
    if !child::is_child() {
        child::passes("a_signal_is_no_end", &[]);
        return;
    }
    // SAFETY: the handler adds to an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = counts as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    everyone(|crew| {
        let room = Room::new();
        fifo(&room.join("fifo"));
        let mut both = std::fs::File::options().read(true).write(true).open(room.join("fifo")).unwrap();
        let thread = Arc::new(AtomicI32::new(0));
        let file = File::from(both.try_clone().unwrap());
        let tells = Arc::clone(&thread);
        let reader = crew.go(move || {
            // Otherwise a goroutine that is about to block may go to another thread.
            gmp::lock_os_thread();
            let mut bytes = vec![0; 10];
            for part in bytes.chunks_mut(5) {
                // SAFETY: no pointers.
                tells.store(unsafe { libc::gettid() }, SeqCst);
                (&file).read_exact(part).unwrap();
            }
            bytes
        });
        for _ in 0..2 {
            let mut reading = 0;
            until(|| {
                reading = thread.swap(0, SeqCst);
                reading != 0 || reader.is_finished()
            });
            for _ in 0..20 {
                until(|| reader.is_finished() || reads(reading));
                let before = CALLS.load(SeqCst);
                // SAFETY: no pointers.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), reading, libc::SIGUSR2) };
                until(|| reader.is_finished() || CALLS.load(SeqCst) > before);
            }
            both.write_all(b"hello").unwrap();
        }
        assert_eq!(reader.join(), b"hellohello");
    });
}

/// Fails when a goroutine that waits for a FIFO's bytes keeps the only P, or when a goroutine at another file waits for it.
#[test]
fn a_wait_for_a_fifo_stalls_no_file() {
    watched(1, || {
        let (rt, room) = (runtime(1), Arc::new(Room::new()));
        fifo(&room.join("fifo"));
        std::fs::write(room.join("file"), "calm").unwrap();
        let mut both = OpenOptions::new();
        both.read(true).write(true);
        let (reader, mut writer) =
            (both.open(room.join("fifo")).unwrap(), both.open(room.join("fifo")).unwrap());
        let waits = rt.go(move || {
            let mut bytes = [0; 1];
            (&reader).read_exact(&mut bytes).unwrap();
            bytes
        });
        for _ in 0..100 {
            let room = Arc::clone(&room);
            assert_eq!(rt.go(move || fs::read_to_string(room.join("file")).unwrap()).join().unwrap(), "calm");
        }
        writer.write_all(b"!").unwrap();
        assert_eq!(waits.join().unwrap(), *b"!");
    });
}

/// With a line of one turn, a read waits for another goroutine's write, as at a pipe. Fails by a hang.
#[test]
fn counters_of_the_kernel_do_not_wait_in_line() {
    watched(1, || {
        let builder = Runtime::builder().procs(1).max_file_calls(1);
        // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
        let rt = unsafe { builder.build() }.unwrap();
        // SAFETY: no pointers; the descriptor is new, and nothing else owns it.
        let counter = unsafe { OwnedFd::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        let file = File::from(counter);
        let twin = file.try_clone().unwrap();
        let reads = rt.go(move || {
            let mut bytes = [0; 8];
            (&file).read_exact(&mut bytes).unwrap();
            u64::from_ne_bytes(bytes)
        });
        for _ in 0..100 {
            assert!(rt.go(|| fs::exists("/").unwrap()).join().unwrap());
        }
        rt.go(move || (&twin).write_all(&7_u64.to_ne_bytes()).unwrap()).join().unwrap();
        assert_eq!(reads.join().unwrap(), 7);
    });
}
