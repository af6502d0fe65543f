//! Makes system calls of this process fail from here on, as a sandbox does.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::channel;
use std::thread;

/// The call that the C library's `poll` makes.
#[cfg(target_arch = "x86_64")]
pub const SYS_POLL: libc::c_long = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
pub const SYS_POLL: libc::c_long = libc::SYS_ppoll;

/// From here on these calls fail with `errno`, on all threads.
#[track_caller]
pub fn refuse(calls: &[libc::c_long], errno: libc::c_int) {
    refuse_on(calls, errno, libc::SECCOMP_FILTER_FLAG_TSYNC);
}

/// As `refuse`, on the calling thread and those that it starts.
#[track_caller]
pub fn refuse_here(calls: &[libc::c_long], errno: libc::c_int) {
    refuse_on(calls, errno, 0);
}

#[track_caller]
fn refuse_on(calls: &[libc::c_long], errno: libc::c_int, flags: libc::c_ulong) {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number)];
    for (nth, &call) in calls.iter().enumerate() {
        let to_the_refusal = (calls.len() - nth) as u8;
        program.push(jump(call as u32, to_the_refusal, 0));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32));
    install(&program, flags);
}

/// From here on writes of eight bytes, as those into an eventfd are, fail with `errno`, on all threads.
#[track_caller]
pub fn refuse_writes_of_eight(errno: libc::c_int) {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    // The lower half of the third argument, on machines whose lower half comes first.
    let len = (std::mem::offset_of!(libc::seccomp_data, args) + 2 * size_of::<u64>()) as u32;
    install(
        &[
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number),
            jump(libc::SYS_write as u32, 0, 3),
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, len),
            jump(8, 0, 1),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ],
        libc::SECCOMP_FILTER_FLAG_TSYNC,
    );
}

/// From here on `call` fails with `errno` if the lower half of its argument `nth`, counted from zero, is not zero, on all
/// threads. Kernels that know no flag of the call answer so.
#[track_caller]
pub fn refuse_flags(call: libc::c_long, nth: usize, errno: libc::c_int) {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let flags = (std::mem::offset_of!(libc::seccomp_data, args) + nth * size_of::<u64>()) as u32;
    install(
        &[
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number),
            jump(call as u32, 0, 3),
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, flags),
            jump(0, 1, 0),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ],
        libc::SECCOMP_FILTER_FLAG_TSYNC,
    );
}

/// From here on `call` fails with `errno` if its argument `nth`, counted from zero, is more than `most`, on all threads.
#[track_caller]
pub fn refuse_above(call: libc::c_long, nth: usize, most: u32, errno: libc::c_int) {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    // The lower half of the argument, on machines whose lower half comes first, and behind it the upper one.
    let lower = (std::mem::offset_of!(libc::seccomp_data, args) + nth * size_of::<u64>()) as u32;
    let above = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16,
        jt: 2,
        jf: 0,
        k: most,
    };
    install(
        &[
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number),
            jump(call as u32, 0, 5),
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, lower),
            above,
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, lower + size_of::<u32>() as u32),
            jump(0, 1, 0),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ],
        libc::SECCOMP_FILTER_FLAG_TSYNC,
    );
}

/// From here on `call` fails with `errno` if the lower half of its argument `nth`, counted from zero, is less than `least`, on
/// all threads.
#[track_caller]
pub fn refuse_below(call: libc::c_long, nth: usize, least: u32, errno: libc::c_int) {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let lower = (std::mem::offset_of!(libc::seccomp_data, args) + nth * size_of::<u64>()) as u32;
    let enough = libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16,
        jt: 1,
        jf: 0,
        k: least,
    };
    install(
        &[
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number),
            jump(call as u32, 0, 3),
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, lower),
            enough,
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ],
        libc::SECCOMP_FILTER_FLAG_TSYNC,
    );
}

/// From here on, on this thread and those that it starts, each `call` begins once `before` has returned, which runs on a thread
/// of its own.
#[track_caller]
pub fn precede(call: libc::c_long, mut before: impl FnMut() + Send + 'static) {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number),
        jump(call as u32, 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF),
    ];
    let (give, take) = channel();
    // The thread starts before the filter is there, so that the filter does not hold the thread's own calls.
    thread::spawn(move || {
        let listener: OwnedFd = take.recv().expect("the filter is there");
        loop {
            if let Some(asked) = asked(&listener) {
                before();
                goes_on(&listener, asked.id);
            }
        }
    });
    let listener = install(&program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the kernel has just made the descriptor.
    give.send(unsafe { OwnedFd::from_raw_fd(listener as libc::c_int) }).expect("the thread is there");
}

/// As `precede`, for two calls, each of which fails with `errno` while `refuses` returns true.
#[track_caller]
pub fn refuse_while(
    calls: [libc::c_long; 2],
    errno: libc::c_int,
    mut refuses: impl FnMut() -> bool + Send + 'static,
) {
    let number = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    let program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number),
        jump(calls[0] as u32, 2, 0),
        jump(calls[1] as u32, 1, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF),
    ];
    let (give, take) = channel();
    // The thread starts before the filter is there, as in `precede`.
    thread::spawn(move || {
        let listener: OwnedFd = take.recv().expect("the filter is there");
        loop {
            if let Some(asked) = asked(&listener) {
                match refuses() {
                    true => fails(&listener, asked.id, errno),
                    false => goes_on(&listener, asked.id),
                }
            }
        }
    });
    let listener = install(&program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER);
    // SAFETY: the kernel has just made the descriptor.
    give.send(unsafe { OwnedFd::from_raw_fd(listener as libc::c_int) }).expect("the thread is there");
}

/// Waits for a call that is held. Returns `None` if its caller was interrupted meanwhile, and will ask again.
pub(crate) fn asked(listener: &OwnedFd) -> Option<libc::seccomp_notif> {
    // SAFETY: zeros are a value of this type, and the one that the call asks for.
    let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    let got = unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) };
    (got == 0).then_some(asked)
}

/// Lets a call that was held begin.
pub(crate) fn goes_on(listener: &OwnedFd, id: u64) {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the answer is read during the call. It fails if the caller was interrupted meanwhile, and will ask again.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}

/// Makes a call that was held fail.
fn fails(listener: &OwnedFd, id: u64, errno: libc::c_int) {
    let mut answer = libc::seccomp_notif_resp { id, val: 0, error: -errno, flags: 0 };
    // SAFETY: as in `goes_on`.
    unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, &raw mut answer) };
}

pub(crate) fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// Returns a jump: over `jt` instructions if the accumulator is `k`, else over `jf`.
pub(crate) fn jump(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k }
}

/// Returns what the kernel returns: with `SECCOMP_FILTER_FLAG_NEW_LISTENER` a descriptor.
#[track_caller]
pub(crate) fn install(program: &[libc::sock_filter], flags: libc::c_ulong) -> libc::c_long {
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the filter is read during the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let set = libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const filter);
        assert!(set >= 0, "{}", io::Error::last_os_error());
        set
    }
}
