//! Children whose status is lost, or whose number another child has: other code took the status, or a tracer keeps it.

use common::cpu::thread_time;
use common::crew::{Member, on_thread};
use common::seccomp::refuse;
use common::{child, runtime, skipped, until, watched};
use gmp::process::{Child, Command, Stdio};
use std::fs;
use std::io::{self, PipeWriter, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// A child that ends when its standard input ends, with this code.
fn waiting(code: i32) -> Child {
    start(code, false)
}

fn start(code: i32, kill_on_drop: bool) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("read line; exit {code}")]);
    command.stdin(Stdio::piped()).kill_on_drop(kill_on_drop).spawn().unwrap()
}

/// Takes the status of the process, as other code may. Returns `Ok(None)` if the process has not ended.
fn take_status(pid: u32, options: libc::c_int) -> io::Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: the status lives through the call.
    match unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, options) } {
        0 => Ok(None),
        taken if taken == pid as libc::pid_t => Ok(Some(libc::WEXITSTATUS(status))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Another child of this process, with a chosen number. The child ends with code 7 when this value is dropped.
struct Other(#[expect(dead_code, reason = "closed by the drop")] PipeWriter);

impl Other {
    /// Starts the child. Fails if the process may not choose numbers.
    fn start(pid: u32) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let pids = [pid as libc::pid_t];
        // SAFETY: plain numbers.
        let mut asked: libc::clone_args = unsafe { std::mem::zeroed() };
        asked.exit_signal = libc::SIGCHLD as u64;
        asked.set_tid = pids.as_ptr() as u64;
        asked.set_tid_size = 1;
        // SAFETY: the arguments live through the call, as a fork's; the new process makes system calls alone.
        match unsafe { libc::syscall(libc::SYS_clone3, &raw const asked, size_of_val(&asked)) } {
            0 => {
                let mut byte = 0_u8;
                // SAFETY: the byte lives through the call; the descriptors are this process's copies.
                unsafe {
                    libc::close(writer.as_raw_fd());
                    libc::read(reader.as_raw_fd(), (&raw mut byte).cast(), 1);
                    libc::_exit(7)
                }
            }
            started if started == i64::from(pid) => Ok(Other(writer)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Returns a child whose status is taken, and another with its number; `None` if the process may not choose numbers.
fn replaced(kill_on_drop: bool) -> Option<(Child, Other)> {
    let mut child = start(3, kill_on_drop);
    let pid = child.id();
    drop(child.stdin.take());
    assert_eq!(take_status(pid, 0).unwrap(), Some(3));
    match Other::start(pid) {
        Ok(other) => Some((child, other)),
        // Another process has got the number first.
        Err(taken) if taken.raw_os_error() == Some(libc::EEXIST) => replaced(kill_on_drop),
        Err(refused) => {
            assert!(matches!(refused.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{refused}");
            skipped(format_args!("numbers can't be chosen ({refused})"));
            None
        }
    }
}

/// Returns the numbers of the threads that wait for dropped children.
fn reapers() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let reaps = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("gmp-reap"))
    };
    tasks.filter(reaps).map(|task| task.file_name().into_string().unwrap()).collect()
}

/// Returns the CPU time of this thread of the process.
fn time_of(thread: i32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    let behind_the_name = stat.rsplit_once(") ").unwrap().1.split(' ');
    let ticks: u64 = behind_the_name.skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    // SAFETY: no pointers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    Duration::from_millis(ticks * 1000 / per_second)
}

fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

/// Another child has the number of a child whose status was taken. Fails by a hang, by the other child's status, or when the
/// other child is killed.
#[test]
fn a_child_is_not_mistaken_for_another_that_has_its_number() {
    const NAME: &str = "a_child_is_not_mistaken_for_another_that_has_its_number";
    if !child::is_child() {
        // The other child has copies of all descriptors.
        child::passes(NAME, &[]);
        return;
    }
    type Asks = fn(&mut Child) -> io::Error;
    let ways: [Asks; 2] = [|child| child.wait().unwrap_err(), |child| child.try_wait().unwrap_err()];
    for procs in [1, 4] {
        for (asks, ended) in ways.into_iter().flat_map(|asks| [(asks, false), (asks, true)]) {
            watched(procs, || {
                runtime(procs).run(move || {
                    let Some((mut child, other)) = replaced(false) else { return };
                    let pid = child.id();
                    let other = Some(other).filter(|_| !ended);
                    if ended {
                        until(|| state(pid) == Some('Z'));
                    }
                    for _ in 0..2 {
                        let gone = asks(&mut child);
                        assert_eq!(gone.raw_os_error(), Some(libc::ECHILD), "{gone}");
                        child.kill().unwrap();
                    }
                    if !ended {
                        assert_eq!(take_status(pid, libc::WNOHANG).unwrap(), None);
                    }
                    drop(other);
                    assert_eq!(take_status(pid, 0).unwrap(), Some(7));
                });
            });
        }
    }
}

/// The first child was gone when its descriptor was opened: from then on its number was free, or a thread's. Fails when the
/// other child's status is taken, or when the other child is killed.
#[test]
fn a_child_that_was_gone_at_once_is_not_mistaken_for_another() {
    const NAME: &str = "a_child_that_was_gone_at_once_is_not_mistaken_for_another";
    if !child::is_child() {
        // The errors of kernels for a number that is free; for a thread's number; for a thread's number in older kernels.
        for errno in [libc::ESRCH, libc::ENOENT, libc::EINVAL] {
            child::passes(NAME, &[("ERRNO", &errno.to_string())]);
        }
        return;
    }
    fn is_gone(gone: io::Error) {
        assert_eq!(gone.raw_os_error(), Some(libc::ECHILD), "{gone}");
    }
    type Asks = fn(Child);
    let ways: [Asks; 4] = [
        |mut child| is_gone(child.wait().unwrap_err()),
        |mut child| is_gone(child.try_wait().unwrap_err()),
        |mut child| child.kill().unwrap(),
        drop,
    ];
    // As if each child had ended before, and other code had taken its status.
    refuse(&[libc::SYS_pidfd_open], std::env::var("ERRNO").unwrap().parse().unwrap());
    for asks in ways {
        watched(1, || {
            runtime(1).run(move || {
                let Some((child, other)) = replaced(true) else { return };
                let pid = child.id();
                asks(child);
                assert_eq!(take_status(pid, libc::WNOHANG).unwrap(), None);
                assert!(reapers().is_empty());
                drop(other);
                assert_eq!(take_status(pid, 0).unwrap(), Some(7));
            });
        });
    }
}

/// Fails when a thread waits for the other child, or takes its status.
#[test]
fn a_dropped_child_whose_number_another_has_is_forgotten() {
    const NAME: &str = "a_dropped_child_whose_number_another_has_is_forgotten";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    watched(1, || {
        runtime(1).run(|| {
            let Some((child, other)) = replaced(false) else { return };
            let pid = child.id();
            drop(child);
            // The thread has another child to wait for, and ends when that child has ended.
            let mut alive = waiting(3);
            let stdin = alive.stdin.take();
            drop(alive);
            until(|| reapers().len() == 1);
            drop(stdin);
            until(|| reapers().is_empty());
            drop(other);
            assert_eq!(take_status(pid, 0).unwrap(), Some(7));
        });
    });
}

/// The kernel takes the status of a dropped child. Fails when a thread stays.
#[test]
fn a_dropped_child_that_is_reaped_elsewhere_is_forgotten() {
    const NAME: &str = "a_dropped_child_that_is_reaped_elsewhere_is_forgotten";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    watched(1, || {
        runtime(1).run(|| {
            let [mut first, mut second] = [1, 2].map(waiting);
            let (one, other) = (first.stdin.take(), second.stdin.take());
            drop((first, second));
            until(|| reapers().len() == 1);
            // SAFETY: no handler.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
            drop((one, other));
            until(|| reapers().is_empty());
        });
    });
}

/// The waiter for a child.
#[derive(Clone, Copy, Debug)]
enum Who {
    Reaper,
    Goroutine,
    Thread,
}

/// Fails when a reaper or a thread spins while a tracer keeps the status; or when, after the tracer has let go, a zombie stays
/// or a wait does not end.
#[test]
fn a_status_that_a_tracer_keeps_is_waited_for() {
    const NAME: &str = "a_status_that_a_tracer_keeps_is_waited_for";
    const TRACES: &str = "TRACES";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    if let Ok(pid) = std::env::var(TRACES) {
        let pid: libc::pid_t = pid.parse().unwrap();
        // SAFETY: no pointers.
        let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
        assert_eq!(seized, 0, "{}", io::Error::last_os_error());
        // The tracer lets go when it ends.
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    watched(1, || {
        let rt = runtime(1);
        for who in [Who::Reaper, Who::Goroutine, Who::Thread] {
            let mut kept = rt.go(|| waiting(3)).join().unwrap();
            let (pid, stdin) = (kept.id(), kept.stdin.take());
            let mut tracer = child::command(NAME);
            tracer.env(TRACES, pid.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut tracer = tracer.spawn().unwrap();
            let mut refused = None;
            until(|| {
                refused = tracer.try_wait().unwrap();
                let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
                refused.is_some() || !status.contains("TracerPid:\t0\n")
            });
            if refused.is_some() {
                skipped("this process may not be traced");
                return;
            }
            let waits = match who {
                Who::Reaper => {
                    drop(kept);
                    None
                }
                Who::Goroutine => Some(Member::Goroutine(&rt, rt.go(move || kept.wait().unwrap()))),
                Who::Thread => Some(on_thread(move || kept.wait().unwrap())),
            };
            drop(stdin);
            until(|| state(pid) == Some('Z'));
            let waiter = match &waits {
                None => {
                    until(|| reapers().len() == 1);
                    Some(reapers()[0].parse().unwrap())
                }
                Some(Member::Thread(id, _)) => {
                    until(|| id.load(SeqCst) != 0);
                    Some(id.load(SeqCst))
                }
                Some(Member::Goroutine(..)) => None,
            };
            if let Some(waiter) = waiter {
                let (begun, before) = (thread_time(), time_of(waiter));
                while thread_time() - begun < Duration::from_millis(300) {}
                let spent = time_of(waiter) - before;
                assert!(spent < Duration::from_millis(50), "{who:?}: {spent:?}");
            }
            drop(tracer.stdin.take());
            assert!(tracer.wait().unwrap().success());
            match waits {
                Some(waits) => assert_eq!(waits.join().code(), Some(3)),
                None => until(|| state(pid).is_none() && reapers().is_empty()),
            }
        }
    });
}

/// Kernels before 5.4 don't wait by pidfd. Fails by a hang, by a wrong status, when a wait takes a thread, or when a zombie
/// stays.
#[test]
fn without_waits_by_pidfd_the_number_is_asked() {
    const NAME: &str = "without_waits_by_pidfd_the_number_is_asked";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    refuse(&[libc::SYS_waitid], libc::EINVAL);
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            rt.go(|| {
                let mut child = waiting(3);
                assert_eq!(child.try_wait().unwrap(), None);
                let stdin = child.stdin.take();
                let waits = gmp::go(move || child.wait().unwrap().code());
                until(|| common::dumps::read(&gmp::dump()).iter().any(|g| g.1.starts_with("IO wait")));
                drop(stdin);
                assert_eq!(waits.join().unwrap(), Some(3));
                let mut killed = waiting(3);
                killed.kill().unwrap();
                let stdin = killed.stdin.take();
                assert_eq!(killed.wait().unwrap().signal(), Some(libc::SIGKILL));
                drop(stdin);
                let mut taken = waiting(3);
                drop(taken.stdin.take());
                take_status(taken.id(), 0).unwrap();
                for _ in 0..2 {
                    assert_eq!(taken.wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
                }
                let mut dropped = waiting(3);
                let (pid, stdin) = (dropped.id(), dropped.stdin.take());
                drop(dropped);
                drop(stdin);
                until(|| state(pid).is_none() && reapers().is_empty());
            })
            .join()
            .unwrap();
            assert_eq!(rt.shutdown(Duration::from_secs(20)).refused().child_waits(), 0);
        });
    }
}
