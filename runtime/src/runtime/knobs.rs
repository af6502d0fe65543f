//! `GMPDEBUG`: settings that an operator gives a runtime from outside, read once, at the build.

use crate::runtime::policy::Policy;
use std::time::Duration;

/// For the error about an unknown name.
const NAMES: &str = "schedtrace, scheddetail, migrate, panic, handoff, helping, naps, policy, deadlock, sigquit, dumpsignal, refusals, stackuse";

/// The knobs. Their names and meanings stand in the table of [`RuntimeBuilder`](crate::RuntimeBuilder).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Knobs {
    /// `schedtrace=MS`: how often to print a line.
    pub(crate) schedtrace: Option<Duration>,
    /// `scheddetail=1`: further lines for each P, M and goroutine.
    pub(crate) scheddetail: bool,
    /// `migrate=1`: each park resumes on another M.
    pub(crate) migrate: bool,
    /// `panic=abort`: a goroutine's panic ends the process.
    pub(crate) panic_abort: bool,
    /// `handoff=0` switches hand-off off.
    pub(crate) handoff: bool,
    /// `helping=0`: the looks of a busy M have no clock, see `sched/run/look.rs`.
    pub(crate) helping: bool,
    /// `naps=0`: no thief naps.
    pub(crate) naps: bool,
    /// `policy=`: how goroutines are queued and taken, unless the program sets that.
    pub(crate) policy: Option<Policy>,
    /// `deadlock=always`: other threads of the process do not count.
    pub(crate) deadlock_always: bool,
    /// `refusals=all`: each wait that can't be ended is reported.
    pub(crate) all_refusals: bool,
    /// `sigquit=`: what becomes of the process at SIGQUIT.
    pub(crate) sigquit: Sigquit,
    /// `dumpsignal=0`: no dump interrupts a thread.
    pub(crate) dump_signal: bool,
    /// `stackuse=1`: dumps say how much of its stack each goroutine has touched.
    pub(crate) stack_use: bool,
}

/// What SIGQUIT does.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub(crate) enum Sigquit {
    /// Prints a dump, and ends the process.
    #[default]
    Exit,
    /// Prints a dump, and continues.
    Dump,
    /// Does not catch the signal.
    Off,
}

impl Default for Knobs {
    fn default() -> Self {
        Knobs {
            schedtrace: None,
            scheddetail: false,
            migrate: false,
            panic_abort: false,
            handoff: true,
            helping: true,
            naps: true,
            policy: None,
            deadlock_always: false,
            all_refusals: false,
            sigquit: Sigquit::Exit,
            dump_signal: true,
            stack_use: false,
        }
    }
}

impl Knobs {
    /// Reads `name=value`s, separated by commas, as in Go. Of several values for a name the last one counts.
    ///
    /// # Errors
    /// A text that names the unknown knob, or the knob with an unknown value, and the known names or values.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut knobs = Knobs::default();
        for knob in text.split(',').map(str::trim).filter(|knob| !knob.is_empty()) {
            let (name, value) = knob.split_once('=').unwrap_or((knob, ""));
            let taken = match name {
                "schedtrace" => match value.parse() {
                    Ok(ms) => {
                        knobs.schedtrace = (ms > 0).then(|| Duration::from_millis(ms));
                        Ok(())
                    }
                    Err(_) => Err("a number of milliseconds, such as 1000".to_owned()),
                },
                "scheddetail" => switch(&mut knobs.scheddetail, value),
                "migrate" => switch(&mut knobs.migrate, value),
                "handoff" => switch(&mut knobs.handoff, value),
                "helping" => switch(&mut knobs.helping, value),
                "naps" => switch(&mut knobs.naps, value),
                "policy" => match value.parse() {
                    Ok(policy) => {
                        knobs.policy = Some(policy);
                        Ok(())
                    }
                    // The text of the error has the known values, and the limits of the numbers.
                    Err(refused) => return Err(format!("{knob:?}: {refused}")),
                },
                "stackuse" => switch(&mut knobs.stack_use, value),
                "dumpsignal" => switch(&mut knobs.dump_signal, value),
                "panic" => one_of(&mut knobs.panic_abort, value, "abort", "unwind"),
                "deadlock" => one_of(&mut knobs.deadlock_always, value, "always", "alone"),
                "refusals" => one_of(&mut knobs.all_refusals, value, "all", "first"),
                "sigquit" => match value {
                    "exit" => Ok(Sigquit::Exit),
                    "dump" => Ok(Sigquit::Dump),
                    "off" => Ok(Sigquit::Off),
                    _ => Err("exit, dump or off".to_owned()),
                }
                .map(|does| knobs.sigquit = does),
                _ => return Err(format!("{knob:?}: unknown knob, expected one of {NAMES}")),
            };
            taken.map_err(|values| format!("{knob:?}: {name} is {values}"))?;
        }
        Ok(knobs)
    }
}

fn switch(knob: &mut bool, value: &str) -> Result<(), String> {
    one_of(knob, value, "1", "0")
}

/// Sets `knob` by `value`, `on` or `off`.
///
/// # Errors
/// For any other value, a text that names the two known ones.
fn one_of(knob: &mut bool, value: &str, on: &str, off: &str) -> Result<(), String> {
    *knob = match value {
        _ if value == on => true,
        _ if value == off => false,
        _ => return Err(format!("{on} or {off}")),
    };
    Ok(())
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::runtime::policy::{Steal, WorkStealing};

    #[test]
    fn each_knob_is_read() {
        assert_eq!(Knobs::parse("").unwrap(), Knobs::default());
        let text = "schedtrace=250, scheddetail=1,migrate=1,panic=abort,handoff=0,helping=0,naps=0,policy=stealing:steal=one,deadlock=always,refusals=all,sigquit=dump,dumpsignal=0,stackuse=1";
        let all = Knobs {
            schedtrace: Some(Duration::from_millis(250)),
            scheddetail: true,
            migrate: true,
            panic_abort: true,
            handoff: false,
            helping: false,
            naps: false,
            policy: Some(WorkStealing::new().steal(Steal::One).into()),
            deadlock_always: true,
            all_refusals: true,
            sigquit: Sigquit::Dump,
            dump_signal: false,
            stack_use: true,
        };
        assert_eq!(Knobs::parse(text).unwrap(), all);
        assert_eq!(Knobs::parse("handoff=0,handoff=1,schedtrace=5,schedtrace=0").unwrap(), Knobs::default());
    }

    #[test]
    fn what_there_is_none_of_is_named_with_what_there_is() {
        let refused = |text| Knobs::parse(text).unwrap_err();
        assert_eq!(refused("gctrace=1"), format!("\"gctrace=1\": unknown knob, expected one of {NAMES}"));
        assert_eq!(refused("handoff=no"), "\"handoff=no\": handoff is 1 or 0");
        assert_eq!(refused("sigquit=core"), "\"sigquit=core\": sigquit is exit, dump or off");
        let policies = "is not a policy, expected fifo, random:SEED, or stealing with ";
        let lifo = refused("policy=lifo");
        assert!(lifo.starts_with(&format!("\"policy=lifo\": \"lifo\" {policies}")), "{lifo}");
        let tick = refused("policy=stealing:steal=one:tick=1");
        assert!(tick.ends_with(":tick=2..=1048576"), "{tick}");
        assert_eq!(refused("panic"), "\"panic\": panic is abort or unwind");
        assert_eq!(
            refused("schedtrace"),
            "\"schedtrace\": schedtrace is a number of milliseconds, such as 1000"
        );
    }
}
