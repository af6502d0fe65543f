//! How a child is started.

use super::sys::pidfd_open;
use super::{Child, ExitStatus, Output, Stdio};
use crate::goroutine::blocking;
use crate::host::handler::{action, exchange};
use std::ffi::{OsStr, c_int};
use std::fmt;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process;
use std::ptr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A builder of child processes.
///
/// Like [`std::process::Command`]: the child inherits what is not set. [`as_std_mut`](Self::as_std_mut) returns std's own
/// builder.
///
/// ```
/// use gmp::process::Command;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let sleeps = |code: &str| Command::new("sh").args(["-c", &format!("exit {code}")]).status();
///         assert!(sleeps("0").unwrap().success());
///         assert_eq!(sleeps("7").unwrap().code(), Some(7));
///     })
/// }
/// ```
pub struct Command {
    inner: process::Command,
    /// Which of the three streams were set.
    set: [bool; 3],
    kill_on_drop: bool,
    wait_delay: Option<Duration>,
    /// `inner` calls `spare_writers` before it runs the program.
    spares_writers: bool,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Streams that `inner` has set are used by [`spawn`](Command::spawn) and [`status`](Command::status). Such streams do not
/// count as set for [`output`](Command::output): std's builder does not say which are set.
impl From<process::Command> for Command {
    fn from(inner: process::Command) -> Self {
        Command { inner, set: [false; 3], kill_on_drop: false, wait_delay: None, spares_writers: false }
    }
}

/// The thread's signal mask and the process's action for SIGPIPE, which std changes for a program that takes this process's
/// place. The drop restores what the kernel reported; a sandbox may have refused.
struct Signals {
    mask: Option<libc::sigset_t>,
    pipe: Option<libc::sigaction>,
}

impl Signals {
    fn now() -> Self {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: room for the answer, which the kernel has written where it returns 0.
        let mask = unsafe {
            let told = libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) == 0;
            told.then(|| mask.assume_init())
        };
        Signals { mask, pipe: exchange(libc::SIGPIPE, None).ok() }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let is_of_exec = |action: &libc::sigaction| {
            [libc::SIG_DFL, does_nothing as *const () as usize].contains(&action.sa_sigaction)
        };
        // The action first: a SIGPIPE that the mask has held back must find it. An action that another thread has set meanwhile
        // stays.
        if let Some(pipe) = &self.pipe
            && exchange(libc::SIGPIPE, None).is_ok_and(|now| is_of_exec(&now))
        {
            _ = exchange(libc::SIGPIPE, Some(pipe));
        }
        if let Some(mask) = &self.mask {
            // SAFETY: the kernel has given the mask.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
        }
    }
}

extern "C" fn does_nothing(_signal: c_int) {}

/// Has SIGPIPE do nothing if it has its default action, which std has set for the program a moment before, and so for all
/// threads of this process: a thread that writes to a pipe without a reader would end the process while execvp(3) goes through
/// the `PATH`. The kernel gives the program the default action in place of a handler.
fn spare_writers() -> io::Result<()> {
    if exchange(libc::SIGPIPE, None).is_ok_and(|now| now.sa_sigaction == libc::SIG_DFL) {
        let nothing = action(does_nothing as *const () as usize, libc::SA_ONSTACK | libc::SA_RESTART);
        _ = exchange(libc::SIGPIPE, Some(&nothing));
    }
    Ok(())
}

/// Methods that std's builder has, and that return the builder.
macro_rules! builds {
    ($($(#[$doc:meta])* $method:ident $([$($of:tt)*])? ($($arg:ident: $ty:ty),*);)+) => {
        impl Command {
            $(
                $(#[$doc])*
                pub fn $method $(<$($of)*>)? (&mut self $(, $arg: $ty)*) -> &mut Self {
                    self.inner.$method($($arg),*);
                    self
                }
            )+
        }
    };
}

builds! {
    /// Adds an argument.
    arg[S: AsRef<OsStr>](arg: S);
    /// Adds arguments.
    args[I: IntoIterator<Item = S>, S: AsRef<OsStr>](args: I);
    /// Sets a variable of the child's environment.
    env[K: AsRef<OsStr>, V: AsRef<OsStr>](key: K, value: V);
    /// Sets variables of the child's environment.
    envs[I: IntoIterator<Item = (K, V)>, K: AsRef<OsStr>, V: AsRef<OsStr>](vars: I);
    /// Removes a variable from the child's environment.
    env_remove[K: AsRef<OsStr>](key: K);
    /// Makes the child inherit no variable.
    env_clear();
    /// Sets the child's working directory.
    current_dir[P: AsRef<Path>](dir: P);
    /// Sets the child's user.
    uid(id: u32);
    /// Sets the child's group.
    gid(id: u32);
    /// Sets the name that the child gets as its first argument.
    arg0[S: AsRef<OsStr>](name: S);
    /// Puts the child into a group of processes; 0: into one of its own.
    process_group(group: i32);
}

impl Command {
    /// Makes a builder for the program at the path `program`, or with that name in the `PATH`.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        process::Command::new(program).into()
    }

    /// Sets the child's standard input. [`Stdio::piped`] makes a pipe, which [`Child::stdin`] then has.
    pub fn stdin<T: Into<Stdio>>(&mut self, input: T) -> &mut Self {
        self.inner.stdin(input);
        self.set[0] = true;
        self
    }

    /// Sets the child's standard output, as [`stdin`](Self::stdin).
    pub fn stdout<T: Into<Stdio>>(&mut self, output: T) -> &mut Self {
        self.inner.stdout(output);
        self.set[1] = true;
        self
    }

    /// Sets the child's standard error, as [`stdin`](Self::stdin).
    pub fn stderr<T: Into<Stdio>>(&mut self, output: T) -> &mut Self {
        self.inner.stderr(output);
        self.set[2] = true;
        self
    }

    /// Sets whether the child is killed when its [`Child`] is dropped before a call has waited for it. Off by default.
    /// [`status`](Self::status) and [`output`](Self::output) drop the child when a context ends their wait.
    pub fn kill_on_drop(&mut self, kills: bool) -> &mut Self {
        self.kill_on_drop = kills;
        self
    }

    /// Sets how long [`output`](Self::output) and [`Child::wait_with_output`] go on reading when the child has ended. A process
    /// that the child has started, a daemon or the last program of a shell that was killed, may have the child's streams too,
    /// and keep them open for as long as it likes. After the time the result is what was read by then: all that the child
    /// itself has written, also with a time of zero, and what others have written meanwhile. Default: until both streams end,
    /// as with [`Duration::MAX`].
    ///
    /// As the delay of Go's `exec.Cmd`, with these differences: Go's zero is no bound, here the call ends with the child; the
    /// end of a context begins no delay; and no error says that a stream has not ended.
    ///
    /// Without a descriptor that reports the child's end (see [the module](super)) the call reads until both streams end.
    ///
    /// ```
    /// use gmp::process::Command;
    /// use std::time::Duration;
    ///
    /// // `sleep` has the shell's standard output.
    /// let mut command = Command::new("sh");
    /// command.args(["-c", "sleep 3600 & echo $!"]).wait_delay(Duration::ZERO);
    /// let output = command.output()?;
    /// let sleeper = String::from_utf8(output.stdout).unwrap();
    /// assert!(Command::new("sh").args(["-c", "kill $0", sleeper.trim()]).status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "WaitDelay")]
    pub fn wait_delay(&mut self, delay: Duration) -> &mut Self {
        self.wait_delay = Some(delay);
        self
    }

    /// Calls `f` in the child, before the child runs its program.
    ///
    /// # Safety
    /// As with std: `f` runs in a copy of this process that has one thread, so a lock that another thread holds stays locked
    /// for ever. `f` must not allocate, and must not call this library.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: by this function's contract.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    /// Replaces this process by the program. Returns only if that fails. Blocks the thread meanwhile, but no other goroutine:
    /// the call is made as in [`blocking`](crate::blocking), so the program does not inherit the CPUs of a P
    /// ([`cpu_sets`](crate::RuntimeBuilder::cpu_sets)), and the goroutine may park before the call, and after one that failed.
    ///
    /// After a failure this process goes on with its own signal mask and action for SIGPIPE. Other settings of the builder may
    /// have taken effect already, as with std: a working directory, streams, a user, and the functions of
    /// [`pre_exec`](Self::pre_exec). While execvp(3) looks for the program, another thread's write to a pipe without a reader
    /// returns an error as usual; but std sets the default action of SIGPIPE before that, so for a moment, and as long as the
    /// functions of `pre_exec` run, such a write ends the process. From the first `exec` on the builder has a function of this
    /// kind: a later [`spawn`](Self::spawn) forks, and a function that is added then finds a handler of SIGPIPE.
    ///
    /// All other goroutines and threads end at once, and no destructor runs. Descriptors that are closed on exec, as all of
    /// this library's are, do not outlive the call.
    ///
    /// ```no_run
    /// use gmp::process::Command;
    ///
    /// let refused = Command::new("/no/such/program").exec();
    /// assert_eq!(refused.kind(), std::io::ErrorKind::NotFound);
    /// ```
    ///
    /// # Unwinds
    /// Never: nothing from outside ends these waits.
    ///
    /// # Errors
    /// The returned value is the error, as with [`spawn`](Self::spawn) and with std.
    pub fn exec(&mut self) -> io::Error {
        blocking(|| self.exec_here())
    }

    fn exec_here(&mut self) -> io::Error {
        /// Two that overlap would each take the other's action for the process's own.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let _signals = Signals::now();
        if !mem::replace(&mut self.spares_writers, true) {
            // SAFETY: the function allocates nothing, and takes no lock.
            unsafe { self.inner.pre_exec(spare_writers) };
        }
        self.inner.exec()
    }

    /// Returns the program.
    pub fn get_program(&self) -> &OsStr {
        self.inner.get_program()
    }

    /// Returns the arguments.
    pub fn get_args(&self) -> process::CommandArgs<'_> {
        self.inner.get_args()
    }

    /// Returns the variables that were set, and those that were removed (`None`).
    pub fn get_envs(&self) -> process::CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// Returns the working directory that was set.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }

    /// Returns std's builder.
    pub fn as_std(&self) -> &process::Command {
        &self.inner
    }

    /// Returns std's builder, for settings that this type does not have. Streams that are set on it do not count as set for
    /// [`output`](Self::output): set them by this type's methods.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.inner
    }

    /// Starts the child. Blocks the thread until the child runs its program, but no other goroutine: the call is made as in
    /// [`blocking`](crate::blocking), and the goroutine may park before and after it.
    ///
    /// The child is forked from the thread on which the caller happens to run. That thread may end before the program does, and
    /// `PR_SET_PDEATHSIG`, which a function of [`pre_exec`](Self::pre_exec) may set, refers to the end of that thread.
    ///
    /// # Unwinds
    /// Never: nothing from outside ends these waits.
    ///
    /// # Errors
    /// As with std.
    pub fn spawn(&mut self) -> io::Result<Child> {
        let (child, ends) = blocking(|| {
            let child = self.inner.spawn()?;
            // At once, and not when the goroutine runs again: other code may take the child's status as soon as the child has
            // ended, and another process may then get the number.
            let ends = pidfd_open(child.id());
            io::Result::Ok((child, ends))
        })?;
        Ok(Child::new(child, ends, self.kill_on_drop, self.wait_delay))
    }

    /// Starts the child, and waits for its end. Blocks the goroutine, or the plain thread.
    ///
    /// ```
    /// assert!(gmp::process::Command::new("true").status()?.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait`].
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// Starts the child, waits for its end, and returns all its output: standard output and standard error are pipes unless the
    /// methods of this type have set them, and standard input is empty unless those methods have set it. Blocks the goroutine,
    /// or the plain thread.
    ///
    /// Unlike with std, this call replaces a stream that was set in std's builder ([`From`], [`as_std_mut`](Self::as_std_mut)),
    /// and the stream is inherited from this call on.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        self.set_others(Stdio::null, Stdio::piped);
        let child = self.spawn();
        // The builder may be used again: with `spawn` the child inherits the streams that were not set.
        self.set_others(Stdio::inherit, Stdio::inherit);
        child?.wait_with_output()
    }

    /// Sets the streams that this type's methods have not set.
    fn set_others(&mut self, input: fn() -> Stdio, output: fn() -> Stdio) {
        let [has_input, has_output, has_error] = self.set;
        if !has_input {
            self.inner.stdin(input());
        }
        if !has_output {
            self.inner.stdout(output());
        }
        if !has_error {
            self.inner.stderr(output());
        }
    }
}
