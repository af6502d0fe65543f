//! How a child is started.

use super::{Child, ExitStatus, Output, Stdio};
use crate::goroutine::blocking;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process;
use std::ptr;

/// A builder of child processes.
///
/// Like [`std::process::Command`]: what is not set is inherited. [`as_std_mut`](Self::as_std_mut) gives std's own builder.
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
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Streams that `inner` has set are used by [`spawn`](Command::spawn) and [`status`](Command::status). They do not count as set
/// for [`output`](Command::output): std's builder does not tell of them.
impl From<process::Command> for Command {
    fn from(inner: process::Command) -> Self {
        Command { inner, set: [false; 3], kill_on_drop: false }
    }
}

/// The thread's signal mask and the process's action for SIGPIPE, which std changes for a program that is to take this
/// process's place. The drop brings them back.
struct Signals {
    mask: libc::sigset_t,
    pipe: libc::sigaction,
}

impl Signals {
    fn now() -> Self {
        let (mut mask, mut pipe) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: room for both answers. Neither call fails: the signal exists, and without a new set there is no wrong `how`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr());
            libc::sigaction(libc::SIGPIPE, ptr::null(), pipe.as_mut_ptr());
            Signals { mask: mask.assume_init(), pipe: pipe.assume_init() }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // The action first: a SIGPIPE that waits at the mask is to find it.
        // SAFETY: the kernel has given both values.
        unsafe {
            libc::sigaction(libc::SIGPIPE, &raw const self.pipe, ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut());
        }
    }
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
    /// Has the child inherit no variable.
    env_clear();
    /// Sets the child's working directory.
    current_dir[P: AsRef<Path>](dir: P);
    /// Sets the child's user.
    uid(id: u32);
    /// Sets the child's group.
    gid(id: u32);
    /// Sets the name that the child is told to have.
    arg0[S: AsRef<OsStr>](name: S);
    /// Puts the child into a group of processes; 0: into one of its own.
    process_group(group: i32);
}

impl Command {
    /// Makes a builder for the program at `program`, or of that name in the `PATH`.
    pub fn new<S: AsRef<OsStr>>(program: S) -> Self {
        process::Command::new(program).into()
    }

    /// Sets what the child's standard input is. [`Stdio::piped`] makes a pipe, which [`Child::stdin`] then has.
    pub fn stdin<T: Into<Stdio>>(&mut self, input: T) -> &mut Self {
        self.inner.stdin(input);
        self.set[0] = true;
        self
    }

    /// Sets what the child's standard output is, as [`stdin`](Self::stdin).
    pub fn stdout<T: Into<Stdio>>(&mut self, output: T) -> &mut Self {
        self.inner.stdout(output);
        self.set[1] = true;
        self
    }

    /// Sets what the child's standard error is, as [`stdin`](Self::stdin).
    pub fn stderr<T: Into<Stdio>>(&mut self, output: T) -> &mut Self {
        self.inner.stderr(output);
        self.set[2] = true;
        self
    }

    /// Sets whether the child is killed when its [`Child`] is dropped before a call has waited for it. Off by default.
    pub fn kill_on_drop(&mut self, kills: bool) -> &mut Self {
        self.kill_on_drop = kills;
        self
    }

    /// Has `f` called in the child, before it runs its program.
    ///
    /// # Safety
    /// As with std: `f` runs in a copy of this process that has one thread, so that a lock that another thread holds stays
    /// locked for ever. `f` must not allocate, and must not call this library.
    pub unsafe fn pre_exec<F>(&mut self, f: F) -> &mut Self
    where
        F: FnMut() -> io::Result<()> + Send + Sync + 'static,
    {
        // SAFETY: by this function's contract.
        unsafe { self.inner.pre_exec(f) };
        self
    }

    /// Has the program take this process's place. Returns only if that fails. Blocks the thread meanwhile; the goroutine does
    /// not park.
    ///
    /// After a failure this process goes on with its own signal mask and action for SIGPIPE. What the builder asked for
    /// otherwise may have been done already, as with std: a working directory, streams, a user, and what
    /// [`pre_exec`](Self::pre_exec) has called.
    ///
    /// All other goroutines and threads end without a word, and no destructor runs. Descriptors that are closed on exec, as all
    /// of this library's are, do not outlive the call.
    ///
    /// ```no_run
    /// use gmp::process::Command;
    ///
    /// let refused = Command::new("/no/such/program").exec();
    /// assert_eq!(refused.kind(), std::io::ErrorKind::NotFound);
    /// ```
    ///
    /// # Errors
    /// The value is one: that of [`spawn`](Self::spawn), as with std.
    pub fn exec(&mut self) -> io::Error {
        let _signals = Signals::now();
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

    /// Returns std's builder, for what this type does not have. Streams that are set by it do not count as set for
    /// [`output`](Self::output): set them by this type's methods.
    pub fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.inner
    }

    /// Starts the child. Blocks the thread until the child runs its program, and no other goroutine: the call is made as in
    /// [`blocking`](crate::blocking), and the goroutine may park before it and behind it.
    ///
    /// The child is forked from the thread on which the caller happens to run. That thread may end before the program does,
    /// and `PR_SET_PDEATHSIG`, which a function of [`pre_exec`](Self::pre_exec) may ask for, is about the end of that thread.
    ///
    /// # Unwinds
    /// Never: nothing from outside ends these waits.
    ///
    /// # Errors
    /// As with std; and if a pipe to the child can't be made non-blocking, in which case the child is killed.
    pub fn spawn(&mut self) -> io::Result<Child> {
        Child::new(blocking(|| self.inner.spawn())?, self.kill_on_drop)
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

    /// Starts the child, and waits for its end and for all it says: standard output and standard error are pipes unless they
    /// were set by the methods of this type, and standard input is empty unless those methods have set it. Blocks the
    /// goroutine, or the plain thread.
    ///
    /// Unlike with std, a stream that was set in a builder of std's ([`From`], [`as_std_mut`](Self::as_std_mut)) is set anew here,
    /// and is inherited from this call on.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn) and [`Child::wait_with_output`].
    pub fn output(&mut self) -> io::Result<Output> {
        let [input, output, error] = self.set;
        if !input {
            self.inner.stdin(Stdio::null());
        }
        if !output {
            self.inner.stdout(Stdio::piped());
        }
        if !error {
            self.inner.stderr(Stdio::piped());
        }
        let child = self.spawn();
        // The builder may be used again: what was not set is inherited by `spawn`.
        if !input {
            self.inner.stdin(Stdio::inherit());
        }
        if !output {
            self.inner.stdout(Stdio::inherit());
        }
        if !error {
            self.inner.stderr(Stdio::inherit());
        }
        child?.wait_with_output()
    }
}
