//! System calls that fail in this process from here on, as a sandbox has it.

use std::io;

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

/// From here on writes of eight bytes fail with `errno`, on all threads, as those into an eventfd are.
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

/// From here on `call` fails with `errno` where the lower half of its argument `nth`, counted from zero, is not zero, on all
/// threads: kernels that know no flag of the call answer so.
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

pub(crate) fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// If the accumulator is `k` it goes on so many instructions further, else so many.
pub(crate) fn jump(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf, k }
}

/// Returns what the kernel does: with `SECCOMP_FILTER_FLAG_NEW_LISTENER` a descriptor.
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
