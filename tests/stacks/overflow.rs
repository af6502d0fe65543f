//! A stack overflow is reported with the name of its goroutine; every other fault goes where it went without a runtime.

use common::{child, mask, seccomp, skipped, until, watched};
use gmp::{Builder, Runtime, blocking, go, lock_os_thread, time::sleep, with_stack};
use std::fs;
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use std::{ptr, thread};

fn runtime(procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).build() }.expect("a runtime starts")
}

/// How a child has ended, and what it said.
struct Ended {
    signal: Option<i32>,
    stderr: String,
}

/// Runs `test` in a child process, and returns how it has ended; in the child, calls `body`.
fn child(test: &str, body: fn()) -> Option<Ended> {
    if child::is_child() {
        body();
        return None;
    }
    let output = child::run(test, &[("RUST_BACKTRACE", "0")]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(Ended { signal: output.status.signal(), stderr })
}

/// Asserts that the child has reported an overflow, once, with these parts.
#[track_caller]
fn told(test: &str, body: fn(), parts: &[&str]) {
    let Some(ended) = child(test, body) else { panic!("the child has not overflowed") };
    let stderr = &ended.stderr;
    assert_eq!(ended.signal, Some(libc::SIGABRT), "{stderr}");
    assert_eq!(stderr.matches("stack overflow").count(), 1, "{stderr}");
    for part in parts.iter().chain(&["fatal error: stack overflow"]) {
        assert!(stderr.contains(part), "{part} is not in {stderr}");
    }
    assert!(!stderr.contains("has overflowed its stack"), "std's words are in {stderr}");
}

/// Asserts that the child has died of a fault that is no overflow, as without a runtime.
#[track_caller]
fn died(test: &str, body: fn()) {
    let Some(ended) = child(test, body) else { panic!("the child goes on") };
    assert_eq!(ended.signal, Some(libc::SIGSEGV), "{}", ended.stderr);
    assert!(!ended.stderr.contains("overflow"), "{}", ended.stderr);
}

#[inline(never)]
fn exhaust(depth: usize) -> usize {
    let frame = black_box([depth; 64]);
    if black_box(false) { 0 } else { exhaust(depth + 1) + frame[depth % 64] }
}

#[inline(never)]
fn exhaust_by_40_kib(depth: usize) -> usize {
    let frame = black_box([depth as u8; 40 << 10]);
    if black_box(false) { 0 } else { exhaust_by_40_kib(depth + 1) + usize::from(frame[depth]) }
}

#[inline(never)]
fn write_to_nowhere() {
    // SAFETY: none: the write is to fault.
    unsafe { black_box(ptr::without_provenance_mut::<u8>(16)).write_volatile(1) };
}

/// Returns `true` if a thread of the child is inside poll(2); or may be, if the kernel does not say.
fn polls(child: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{child}/task")) else { return false };
    threads.flatten().any(|thread| match fs::read_to_string(thread.path().join("syscall")) {
        Ok(call) => call.split(' ').next() == Some(&seccomp::SYS_POLL.to_string()),
        Err(refused) => refused.kind() == ErrorKind::PermissionDenied,
    })
}

/// Returns a pipe that is full, and whose writes don't wait.
fn full_pipe() -> (io::PipeReader, io::PipeWriter) {
    let (reader, mut writer) = io::pipe().unwrap();
    // SAFETY: a flag of a descriptor of ours.
    assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    while writer.write(&[b'.'; 4096]).is_ok() {}
    (reader, writer)
}

/// Standard error is a pipe that is full for ever, and whose writes wait. Fails by a hang when the report waits for ever.
#[test]
fn to_a_pipe_that_stays_full() {
    const NAME: &str = "to_a_pipe_that_stays_full";
    if child::is_child() {
        return drop(runtime(2).run(|| go(|| exhaust(0)).join()));
    }
    let (_nobody_reads, writer) = full_pipe();
    // SAFETY: a flag of a descriptor of ours.
    assert_eq!(unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFL, 0) }, 0);
    let mut child = child::command(NAME).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    assert_eq!(watched(0, || child.wait().unwrap().signal()), Some(libc::SIGABRT));
}

/// Standard error is a pipe that is full for a moment, and whose writes don't wait. Fails when a report is lost.
#[test]
fn to_a_reader_that_is_late() {
    const NAME: &str = "to_a_reader_that_is_late";
    if child::is_child() {
        return drop(runtime(2).run(|| go(|| exhaust(0)).join()));
    }
    let (mut reader, writer) = full_pipe();
    let mut child = child::command(NAME).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
    until(|| child.try_wait().unwrap().is_some() || polls(child.id()));
    let mut said = String::new();
    reader.read_to_string(&mut said).unwrap();
    let said = said.trim_start_matches('.');
    assert!(said.starts_with("fatal error: stack overflow in goroutine 2 "), "{said}");
    assert!(said.contains("addr2line") && said.ends_with('\n'), "{said}");
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGABRT));
}

/// Fails by SIGSEGV, or by a line that does not say whose stack it was, how large, and what to do.
#[test]
fn a_goroutine_without_a_name() {
    told(
        "a_goroutine_without_a_name",
        || drop(runtime(2).run(|| go(|| exhaust(0)).join())),
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:", "64 KiB", "Builder::stack_size", "with_stack"],
    );
}

#[test]
fn a_goroutine_with_a_name_and_a_stack_of_its_own() {
    told(
        "a_goroutine_with_a_name_and_a_stack_of_its_own",
        || {
            let parser = Builder::new().name("pârser").stack_size(200 << 10);
            drop(runtime(1).run(|| parser.go(|| exhaust(0)).unwrap().join()));
        },
        &["goroutine 2 'pârser' (spawned at tests/stacks/overflow.rs:", "256 KiB"],
    );
}

#[test]
fn the_main_goroutine() {
    told(
        "the_main_goroutine",
        || assert_eq!(runtime(1).run(|| exhaust(0)), 0),
        &["goroutine 1 'main' (spawned at tests/stacks/overflow.rs:", "64 KiB"],
    );
}

/// The thread is the program's, with a signal stack that std has set.
#[test]
fn the_main_goroutine_on_the_callers_thread() {
    told(
        "the_main_goroutine_on_the_callers_thread",
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        || assert_eq!(unsafe { runtime(1).run_locked(|| exhaust(0)) }, 0),
        &["goroutine 1 'main' (spawned at tests/stacks/overflow.rs:", "addr2line"],
    );
}

#[test]
fn on_the_stack_of_with_stack() {
    told(
        "on_the_stack_of_with_stack",
        || drop(runtime(2).run(|| go(|| with_stack(1 << 20, || exhaust(0))).join())),
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:", "1 MiB of its gmp::with_stack"],
    );
}

/// The threads have inherited the mask, and the kernel calls no handler for a fault whose signal is blocked. Fails by SIGSEGV.
#[test]
fn in_a_program_that_blocks_all_signals() {
    told(
        "in_a_program_that_blocks_all_signals",
        || {
            mask::block_all();
            drop(runtime(2).run(|| go(|| exhaust(0)).join()));
        },
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:", "addr2line"],
    );
}

#[test]
fn on_the_callers_thread_in_a_program_that_blocks_all_signals() {
    told(
        "on_the_callers_thread_in_a_program_that_blocks_all_signals",
        || {
            mask::block_all();
            // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
            assert_eq!(unsafe { runtime(1).run_locked(|| exhaust(0)) }, 0);
        },
        &["goroutine 1 'main' (spawned at tests/stacks/overflow.rs:", "addr2line"],
    );
}

/// Fails if the program's thread comes back with another mask than it had before, or than the goroutine has set.
#[test]
fn a_lent_thread_has_its_mask_back() {
    let rt = runtime(2);
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let within = |f: fn() -> Vec<i32>| unsafe { rt.run_locked(f) };
    thread::scope(|s| {
        s.spawn(|| {
            let none = mask::blocked();
            assert!(!none.contains(&libc::SIGSEGV));
            assert_eq!((within(mask::blocked), mask::blocked()), (none.clone(), none));
            mask::block_all();
            let all = mask::blocked();
            let inside = within(mask::blocked);
            for signal in [libc::SIGSEGV, libc::SIGBUS] {
                assert!(all.contains(&signal) && !inside.contains(&signal), "{signal}: {inside:?}");
            }
            for signal in [libc::SIGINT, libc::SIGCHLD, libc::SIGFPE, libc::SIGRTMIN()] {
                assert!(inside.contains(&signal), "{signal}: {inside:?}");
            }
            assert_eq!(mask::blocked(), all);
            within(|| mask::change(libc::SIG_UNBLOCK, &[libc::SIGUSR1]));
            let others: Vec<_> = all.into_iter().filter(|&signal| signal != libc::SIGUSR1).collect();
            assert_eq!(mask::blocked(), others);
        });
    });
}

/// Fails by a SIGSEGV that no handler gets: the kernel has refused to restore the signal stack of the program's thread, and
/// writes the frame of the next handler where the lent signal stack was.
#[test]
fn a_lent_thread_keeps_a_signal_stack_that_it_cannot_give_back() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn counts(_signal: libc::c_int) {
        CALLS.fetch_add(1, SeqCst);
    }
    if !child::is_child() {
        return drop(child::passes("a_lent_thread_keeps_a_signal_stack_that_it_cannot_give_back", &[]));
    }
    let rt = runtime(2);
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe { rt.run_locked(|| seccomp::refuse(&[libc::SYS_sigaltstack], libc::EPERM)) };
    // SAFETY: a struct of integers; the handler adds to an atomic.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = counts as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
        libc::raise(libc::SIGUSR1);
    }
    assert_eq!(CALLS.load(SeqCst), 1);
}

/// Fails if the range of the stack that the goroutine has left still counts.
#[test]
fn on_the_own_stack_after_with_stack() {
    told(
        "on_the_own_stack_after_with_stack",
        || drop(runtime(2).run(|| go(|| with_stack(1 << 20, || exhaust_a_little(50)) + exhaust(0)).join())),
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:", "64 KiB"],
    );
}

#[inline(never)]
fn exhaust_a_little(depth: usize) -> usize {
    let frame = black_box([depth; 64]);
    if depth == 0 { 0 } else { exhaust_a_little(depth - 1) + frame[depth % 64] }
}

#[test]
fn a_plain_thread_in_with_stack() {
    told(
        "a_plain_thread_in_with_stack",
        || assert_eq!(with_stack(1 << 20, || exhaust(0)), 0),
        &["a plain thread, in gmp::with_stack", "1 MiB", "addr2line"],
    );
}

/// A frame larger than the guard page is touched page by page. Fails by a write into the slot below.
#[test]
fn frames_larger_than_the_guard_page() {
    told(
        "frames_larger_than_the_guard_page",
        || drop(runtime(2).run(|| go(|| exhaust_by_40_kib(0)).join())),
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:"],
    );
}

/// Behaves like a function of C with a frame of `bytes` bytes: it writes to the frame's lower end, and touches no page in
/// between.
#[unsafe(naked)]
extern "C" fn large_frame(bytes: usize) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "sub rsp, rdi",
        "mov byte ptr [rsp], 7",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `large_frame` when less than a page is left of the stack. Below lie the stacks of other goroutines, which are parked.
fn large_frame_at_the_end(rt: Runtime, bytes: usize) {
    #[inline(never)]
    fn descend(end: usize, bytes: usize) {
        let frame = black_box(0_u8);
        match (&raw const frame).addr() - end {
            0..3072 => large_frame(bytes),
            _ => descend(end, bytes),
        }
        black_box(&frame);
    }
    let parked: Vec<_> = (0..20).map(|_| rt.go(|| sleep(Duration::MAX))).collect();
    let ended = rt.go(move || {
        let top = black_box(0_u8);
        // Stacks begin up to 1,920 bytes below their tops, and some frames lie above this one.
        descend((&raw const top).addr() - (58 << 10), bytes);
    });
    drop((ended.join(), parked));
}

/// Fails by a write into the stack of another goroutine.
#[test]
fn frames_of_c_that_are_not_larger_than_the_guard() {
    told(
        "frames_of_c_that_are_not_larger_than_the_guard",
        || large_frame_at_the_end(runtime(1), 12 << 10),
        &["(spawned at tests/stacks/overflow.rs:", "64 KiB", "addr2line"],
    );
}

/// As above.
#[test]
fn a_larger_guard_stops_larger_frames_of_c() {
    told(
        "a_larger_guard_stops_larger_frames_of_c",
        || {
            let builder = Runtime::builder().procs(1).stack_size(64 << 10).guard_size(200_000);
            // SAFETY: nothing here is bound to a thread, and the guard is larger than the frame.
            large_frame_at_the_end(unsafe { builder.build() }.expect("a runtime starts"), 190_000);
        },
        &["(spawned at tests/stacks/overflow.rs:", "64 KiB", "addr2line"],
    );
}

/// From here on the kernel does nothing at any `madvise`, and answers that it did, as emulators do.
fn ignore_advice() {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = [
        // The number of the call stands first.
        step(LOAD, 0, 0, 0),
        step(IS, 1, 0, libc::SYS_madvise as u32),
        step(IS, 0, 1, libc::SYS_process_madvise as u32),
        // An error of number 0 is a success.
        step(ANSWER, 0, 0, libc::SECCOMP_RET_ERRNO),
        step(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the kernel reads the program, for this thread and those that it will start.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program);
        assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    }
}

/// Fails by a write into the stack of another goroutine when the runtime relies on a guard that the kernel never made.
#[test]
fn where_advice_is_ignored_with_success() {
    told(
        "where_advice_is_ignored_with_success",
        || {
            ignore_advice();
            let rt = runtime(1);
            let parked: Vec<_> = (0..200).map(|_| rt.go(|| sleep(Duration::MAX))).collect();
            drop((rt.go(|| exhaust(0)).join(), parked));
        },
        &["(spawned at tests/stacks/overflow.rs:", "64 KiB"],
    );
}

/// A plain thread with a signal stack as small as std's, as seen by the handler on a processor for which the kernel's frames
/// are large. Fails by a report without frames.
#[test]
fn a_plain_thread_with_a_small_signal_stack_in_with_stack() {
    told(
        "a_plain_thread_with_a_small_signal_stack_in_with_stack",
        || {
            // SAFETY: the call only returns a number: AT_MINSIGSTKSZ.
            let least = (unsafe { libc::getauxval(51) } as usize).max(libc::MINSIGSTKSZ);
            let small = Box::leak(vec![0_u8; least + 1024].into_boxed_slice());
            let stack = libc::stack_t { ss_sp: small.as_mut_ptr().cast(), ss_flags: 0, ss_size: small.len() };
            // SAFETY: the bytes are this thread's for good.
            assert_eq!(unsafe { libc::sigaltstack(&stack, ptr::null_mut()) }, 0);
            assert_eq!(with_stack(1 << 20, || exhaust(0)), 0);
        },
        &["a plain thread, in gmp::with_stack", "1 MiB", "its frames, innermost first"],
    );
}

/// Several goroutines overflow at the same time, and all but the first wait for the end of the process. Fails by silence, or by
/// two messages.
#[test]
fn many_at_the_same_time() {
    told(
        "many_at_the_same_time",
        || {
            static READY: AtomicUsize = AtomicUsize::new(0);
            let rt = runtime(4);
            let all = (0..4).map(|_| {
                rt.go(|| {
                    READY.fetch_add(1, SeqCst);
                    while READY.load(SeqCst) < 4 {
                        std::hint::spin_loop();
                    }
                    exhaust(0)
                })
            });
            all.collect::<Vec<_>>().into_iter().for_each(|each| drop(each.join()));
        },
        &["(spawned at tests/stacks/overflow.rs:"],
    );
}

/// Fails if the handler is the first runtime's, or was taken out with it.
#[test]
fn beside_another_runtime_and_after_a_third() {
    told(
        "beside_another_runtime_and_after_a_third",
        || {
            let (first, other) = (runtime(2), runtime(2));
            first.run(|| sleep(Duration::from_millis(1)));
            drop(first);
            let parked = other.go(|| sleep(Duration::MAX));
            let name = Builder::new().name("in the third");
            drop(runtime(2).run(|| name.go(|| exhaust(0)).unwrap().join()));
            drop(parked.join());
        },
        &["'in the third'"],
    );
}

/// The report has commands that name the frames of both ends of the stack.
#[test]
fn the_frames_can_be_resolved() {
    let test = "the_frames_can_be_resolved";
    let Some(ended) = child(test, || drop(runtime(2).run(|| go(|| exhaust(0)).join()))) else { return };
    let line = ended.stderr.lines().find(|line| line.contains("addr2line -Cfpie ")).expect(&ended.stderr);
    let mut words = line.split_whitespace().skip(2);
    let own = std::env::current_exe().unwrap();
    assert_eq!(words.next().map(std::path::Path::new), Some(own.as_path()), "{line}");
    let base = exhaust as *const () as usize - in_object(exhaust as *const ());
    let first = usize::from_str_radix(words.next().unwrap().trim_start_matches("0x"), 16).unwrap();
    let offset = (base + first).wrapping_sub(exhaust as *const () as usize);
    assert!(offset < 4096, "{first:#x} is not in exhaust at {:#x}", in_object(exhaust as *const ()));
    assert_eq!(words.count(), 31, "{line}");
    assert!(ended.stderr.contains(" more)\n"), "{}", ended.stderr);
}

/// Returns the address of `code` within its object.
fn in_object(code: *const ()) -> usize {
    // SAFETY: it writes the struct that we pass; zeros are one.
    let (found, info) = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        (libc::dladdr(code.cast(), &mut info), info)
    };
    assert_ne!(found, 0);
    code.addr() - info.dli_fbase.addr()
}

/// The walk over the frames faults, in the handler. Fails by SIGSEGV, or by silence.
#[test]
fn frames_that_lead_nowhere() {
    /// Its unwind table says that its caller is found by rbp, which points to nowhere.
    #[unsafe(naked)]
    extern "C" fn lost() -> ! {
        std::arch::naked_asm!(
            ".cfi_startproc",
            ".cfi_def_cfa rbp, 16",
            "mov ebp, 16",
            "2:",
            "push rax",
            "jmp 2b",
            ".cfi_endproc",
        )
    }
    told(
        "frames_that_lead_nowhere",
        || drop(runtime(2).run(|| go(|| lost()).join().map(|never: ()| never))),
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:", "64 KiB"],
    );
}

/// Fails by the word overflow, or another end than without a runtime.
#[test]
fn a_wild_write_of_a_goroutine_is_no_overflow() {
    died("a_wild_write_of_a_goroutine_is_no_overflow", || {
        drop(runtime(2).run(|| go(write_to_nowhere).join()));
    });
}

/// The goroutine writes from the top of its stack, where there is room, down to the guard page: the stack itself does not reach
/// it.
#[test]
fn a_wild_write_into_the_own_guard_page_is_no_overflow() {
    died("a_wild_write_into_the_own_guard_page_is_no_overflow", || {
        let write = || {
            let here = black_box(0_u8);
            // The slot is of 64 KiB, and its lowest page the guard; the frame lies within the highest pages.
            let mut page = (&raw const here).addr() & !4095;
            while black_box(page) != 0 {
                page -= 4096;
                // SAFETY: none: the last one is to fault.
                unsafe { black_box(ptr::without_provenance_mut::<u8>(page + 8)).write_volatile(1) };
            }
        };
        drop(runtime(2).run(|| go(write).join()));
    });
}

#[test]
fn a_wild_write_of_a_thread_is_no_overflow() {
    died("a_wild_write_of_a_thread_is_no_overflow", || {
        let rt = runtime(2);
        rt.run(|| ());
        write_to_nowhere();
    });
}

/// std's handler answers any signal that is no overflow by setting the default action, so that the fault repeats itself; a
/// signal that was sent does not. Fails when the child goes on without reports of overflows.
#[test]
fn a_signal_that_was_sent_ends_the_process() {
    died("a_signal_that_was_sent_ends_the_process", || {
        let rt = runtime(2);
        rt.run(|| ());
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) }, 0);
        // Any thread may get the signal.
        thread::sleep(Duration::from_secs(10));
        eprintln!("no overflow is told from here on");
        drop(rt.run(|| go(|| exhaust(0)).join()));
    });
}

/// The kernel does not end the first process of a container by a signal that has its default action. Fails by a hang when the
/// signal that was sent is lost, and so is each one after it.
#[test]
fn a_signal_that_was_sent_ends_the_first_process_of_a_container_too() {
    let name = "a_signal_that_was_sent_ends_the_first_process_of_a_container_too";
    if child::is_child() {
        assert_eq!(std::process::id(), 1);
        if std::env::var_os("DEFAULT").is_some() {
            set_action(libc::SIG_DFL, 0);
        }
        let rt = runtime(1);
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) }, 0);
        return watched(1, move || rt.run(|| sleep(Duration::from_secs(3600))));
    }
    // Without the variable there is std's handler, which sets the default action, and returns.
    for variables in [&[][..], &["DEFAULT"]] {
        let mut command = child::command(name);
        command.envs(variables.iter().map(|variable| (variable, "")));
        match child::as_init(&mut command) {
            Ok(output) => {
                assert_eq!(output.status.code(), Some(128 + libc::SIGSEGV), "{variables:?}: {output:?}")
            }
            Err(refused) => return skipped(format!("no PID namespace can be had: {refused}")),
        }
    }
}

/// std reports the overflow of a plain thread, as without a runtime.
#[test]
fn the_overflow_of_a_thread_is_told_by_std() {
    let Some(ended) = child("the_overflow_of_a_thread_is_told_by_std", || {
        let rt = runtime(2);
        rt.run(|| ());
        let deep = thread::Builder::new().name("a thread".to_owned()).spawn(|| exhaust(0));
        drop(deep.unwrap().join());
    }) else {
        return;
    };
    assert_eq!(ended.signal, Some(libc::SIGABRT), "{}", ended.stderr);
    assert!(ended.stderr.contains("thread 'a thread'"), "{}", ended.stderr);
    assert!(ended.stderr.contains("has overflowed its stack"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("goroutine"), "{}", ended.stderr);
}

/// A thread of the runtime overflows its own stack, before it runs goroutines and after it. Fails when the report is not std's.
#[test]
fn the_overflow_of_a_runtimes_thread_is_told_by_std() {
    const NAME: &str = "the_overflow_of_a_runtimes_thread_is_told_by_std";
    struct Overflows;
    impl Drop for Overflows {
        fn drop(&mut self) {
            exhaust(0);
        }
    }
    if let Ok(when) = std::env::var("WHEN") {
        let builder = match when.as_str() {
            "begins" => Runtime::builder().on_thread_start(|| exhaust(0)),
            _ => Runtime::builder().on_thread_start(|| Overflows),
        };
        // SAFETY: as in `runtime`.
        let rt = unsafe { builder.procs(1).build() }.unwrap();
        rt.run(|| ());
        return;
    }
    for when in ["begins", "ends"] {
        let output = child::run(NAME, &[("WHEN", when), ("RUST_BACKTRACE", "0")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{when}: {said}");
        assert!(said.contains("has overflowed its stack"), "{when}: {said}");
        assert!(!said.contains("goroutine"), "{when}: {said}");
    }
}

/// A goroutine that is bound to its thread runs on its own stack, not on the thread's.
#[test]
fn a_goroutine_that_is_bound_to_its_thread() {
    told(
        "a_goroutine_that_is_bound_to_its_thread",
        || {
            let bound = || {
                lock_os_thread();
                sleep(Duration::from_millis(1));
                exhaust(0)
            };
            drop(runtime(2).run(|| go(bound).join()));
        },
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:", "64 KiB"],
    );
}

/// A goroutine that blocks while another one waits goes to another thread, and takes its stack along.
#[test]
fn a_goroutine_that_has_gone_to_another_thread_to_block() {
    told(
        "a_goroutine_that_has_gone_to_another_thread_to_block",
        || {
            let blocks = || {
                let here = thread::current().id();
                let other = go(|| ());
                blocking(|| {
                    while !other.is_finished() {
                        thread::yield_now();
                    }
                    assert_ne!(thread::current().id(), here);
                    exhaust(0)
                })
            };
            drop(runtime(1).run(|| go(blocks).join()));
        },
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:", "64 KiB"],
    );
}

fn set_action(handler: usize, flags: i32) {
    // SAFETY: the tests pass handlers of the type that the flags tell; zeros are an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()), 0);
    }
}

/// Fails by the default action when the program's handler was forgotten.
#[test]
fn the_programs_handler_gets_other_faults() {
    extern "C" fn plain(signal: i32) {
        // SAFETY: it does not return.
        unsafe { libc::_exit(30 + signal) }
    }
    extern "C" fn full(_signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the pointers are the kernel's, or were handed on.
        let good = unsafe { (*info).si_addr().addr() == 16 && !context.is_null() };
        // SAFETY: it does not return.
        unsafe { libc::_exit(if good { 60 } else { 61 }) }
    }
    extern "C" fn resets(signal: i32) {
        // SAFETY: the call may be made in a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    extern "C" fn raises(signal: i32) {
        resets(signal);
        // SAFETY: no pointers.
        unsafe { libc::raise(signal) };
    }
    let test = "the_programs_handler_gets_other_faults";
    if let Ok(kind) = std::env::var("HANDLER") {
        match kind.as_str() {
            "plain" => set_action(plain as *const () as usize, 0),
            "once" => set_action(plain as *const () as usize, libc::SA_RESETHAND | libc::SA_ONSTACK),
            "resets" => set_action(resets as *const () as usize, libc::SA_ONSTACK),
            "raises" => set_action(raises as *const () as usize, libc::SA_ONSTACK),
            "full" => set_action(full as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK),
            "default" => set_action(libc::SIG_DFL, 0),
            "ignore" => set_action(libc::SIG_IGN, 0),
            other => panic!("{other}"),
        }
        let rt = runtime(2);
        // SAFETY: no pointers.
        let sent = || assert_eq!(unsafe { libc::raise(libc::SIGSEGV) }, 0);
        match std::env::var("FAULT").as_deref() {
            Ok("sent") => drop(rt.run(|| go(sent).join())),
            Ok("overflow") => drop(rt.run(|| go(|| exhaust(0)).join())),
            _ => drop(rt.run(|| go(write_to_nowhere).join())),
        }
        return;
    }
    let run = |handler, fault| {
        let output = child::run(test, &[("HANDLER", handler), ("FAULT", fault)]);
        (output.status.code(), output.status.signal())
    };
    for fault in ["wild", "sent"] {
        for handler in ["plain", "once"] {
            assert_eq!(run(handler, fault), (Some(30 + libc::SIGSEGV), None), "{handler} {fault}");
        }
        for handler in ["default", "resets", "raises"] {
            assert_eq!(run(handler, fault), (None, Some(libc::SIGSEGV)), "{handler} {fault}");
        }
    }
    assert_eq!(run("full", "wild"), (Some(60), None));
    assert_eq!(run("ignore", "wild"), (None, Some(libc::SIGSEGV)));
    assert_eq!(run("ignore", "sent"), (Some(0), None));
    for handler in ["plain", "once", "full", "default", "ignore"] {
        assert_eq!(run(handler, "overflow"), (None, Some(libc::SIGABRT)), "{handler}");
    }
}

/// A handler of the program mends the fault and returns. Fails by SIGSEGV when the runtime's handler is lost by that.
#[test]
fn an_overflow_is_told_after_faults_that_the_program_has_mended() {
    static PAGE: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn mend(_signal: i32) {
        // SAFETY: the test's page.
        unsafe { libc::mprotect(PAGE.load(SeqCst) as *mut _, 4096, libc::PROT_READ | libc::PROT_WRITE) };
    }
    told(
        "an_overflow_is_told_after_faults_that_the_program_has_mended",
        || {
            set_action(mend as *const () as usize, libc::SA_ONSTACK);
            let rt = runtime(2);
            let faults = || {
                // SAFETY: a page of its own, which is written when it can be.
                unsafe {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    let page = libc::mmap(ptr::null_mut(), 4096, libc::PROT_NONE, flags, -1, 0);
                    PAGE.store(page.addr(), SeqCst);
                    for n in 0..10 {
                        libc::mprotect(page, 4096, libc::PROT_NONE);
                        page.cast::<u8>().write_volatile(n);
                        assert_eq!(page.cast::<u8>().read_volatile(), n);
                    }
                }
                exhaust(0)
            };
            drop(rt.run(|| go(faults).join()));
        },
        &["goroutine 2 (spawned at tests/stacks/overflow.rs:"],
    );
}

/// Each thread has a signal stack, and frees it at its end. Fails when mappings stay.
#[test]
fn threads_that_end_free_their_signal_stacks() {
    if !child::is_child() {
        child::passes("threads_that_end_free_their_signal_stacks", &[]);
        return;
    }
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let use_one = || {
        let rt = runtime(4);
        rt.run(|| (0..8).map(|_| go(|| sleep(Duration::from_millis(1)))).for_each(|each| drop(each.join())));
        // SAFETY: as in `runtime`.
        unsafe { rt.run_locked(|| sleep(Duration::from_millis(1))) };
        with_stack(1 << 20, || exhaust_a_little(9));
        assert!(rt.shutdown_timeout(Duration::from_secs(20)));
    };
    (0..5).for_each(|_| use_one());
    let before = maps();
    (0..40).for_each(|_| use_one());
    assert!(maps() < before + 40, "{before} mappings, then {}", maps());
}
