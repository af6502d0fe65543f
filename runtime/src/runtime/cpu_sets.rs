//! The CPUs to which Ps are bound: the set of each P, and the checks when the runtime is built.
//!
//! P number i has set i; if there are fewer sets than Ps, the P with the next number begins again with the first set.
//! `m/bound.rs` applies a set to a thread.

use super::builder::invalid;
use crate::host::{Active, Threads};
use std::fmt;
use std::io;

/// One more than the highest number of a CPU.
pub(crate) const CPUS: usize = 1024;
const BITS: usize = u64::BITS as usize;

/// CPUs, by their numbers, in the form that the kernel reads and writes.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) struct CpuSet(pub(crate) [u64; CPUS / BITS]);

impl CpuSet {
    pub(crate) const EMPTY: CpuSet = CpuSet([0; CPUS / BITS]);
    /// All CPUs that there are or will be.
    pub(crate) const ALL: CpuSet = CpuSet([u64::MAX; CPUS / BITS]);

    /// Adds a CPU, whose number is below `CPUS`.
    pub(crate) fn add(&mut self, cpu: usize) {
        self.0[cpu / BITS] |= 1 << (cpu % BITS);
    }

    pub(crate) fn has(&self, cpu: usize) -> bool {
        self.0[cpu / BITS] & 1 << (cpu % BITS) != 0
    }

    /// Returns the set without one CPU, if that CPU is in it and others are.
    pub(crate) fn but(mut self, cpu: usize) -> Option<Self> {
        if cpu >= CPUS || !self.has(cpu) {
            return None;
        }
        self.0[cpu / BITS] &= !(1 << (cpu % BITS));
        (self != CpuSet::EMPTY).then_some(self)
    }

    fn without(mut self, others: &CpuSet) -> CpuSet {
        self.0.iter_mut().zip(&others.0).for_each(|(word, other)| *word &= !other);
        self
    }
}

/// Writes the set as the kernel does: `0-3,8`.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut cpu, mut comma) = (0, "");
        while cpu < CPUS {
            let first = cpu;
            while cpu < CPUS && self.has(cpu) {
                cpu += 1;
            }
            match cpu - first {
                0 => cpu += 1,
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", cpu - 1)?,
            }
            if cpu > first && self.has(first) {
                comma = ",";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The sets of a runtime.
#[derive(Clone, Debug)]
pub(crate) struct CpuSets {
    /// The CPUs of the thread that has built the runtime, with which a thread of the runtime begins.
    pub(crate) base: CpuSet,
    sets: Box<[CpuSet]>,
    /// For each set the number of the first equal set.
    first: Box<[u32]>,
}

impl CpuSets {
    /// Checks the builder's sets, and asks the kernel for each set whether it grants it. `procs` is the number of Ps that the
    /// builder was given.
    pub(super) fn settle(lists: &[Vec<usize>], procs: Option<usize>) -> io::Result<CpuSets> {
        let sets = parse(lists, procs)?;
        for (number, set) in sets.iter().enumerate() {
            check(number, set, Active::try_affinity(set))?;
        }
        let base = Active::own_affinity().map_err(|refused| {
            io::Error::new(refused.kind(), format!("cpu_sets: the CPUs of a thread can't be read: {refused}"))
        })?;
        Ok(CpuSets::of(base, sets))
    }

    pub(crate) fn of(base: CpuSet, sets: Box<[CpuSet]>) -> CpuSets {
        let first = sets.iter().map(|set| sets.iter().position(|other| other == set).unwrap_or(0) as u32);
        let first = first.collect();
        CpuSets { base, sets, first }
    }

    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }

    /// Returns the number of the set of this P, the same for equal sets.
    pub(crate) fn of_p(&self, p: u32) -> u32 {
        self.first[p as usize % self.first.len()]
    }

    pub(crate) fn set(&self, number: u32) -> &CpuSet {
        &self.sets[number as usize]
    }
}

fn parse(lists: &[Vec<usize>], procs: Option<usize>) -> io::Result<Box<[CpuSet]>> {
    if lists.is_empty() {
        return Err(invalid("cpu_sets: there is no set".to_owned()));
    }
    if let Some(procs) = procs.filter(|&procs| procs < lists.len()) {
        return Err(invalid(format!("cpu_sets: there are {} sets for {procs} Ps", lists.len())));
    }
    let set = |(number, list): (usize, &Vec<usize>)| {
        let mut set = CpuSet::EMPTY;
        for &cpu in list {
            if cpu >= CPUS {
                let most = CPUS - 1;
                return Err(invalid(format!("cpu_sets: CPU {cpu} of set {number} is not within 0..={most}")));
            }
            set.add(cpu);
        }
        if list.is_empty() { Err(invalid(format!("cpu_sets: set {number} is empty"))) } else { Ok(set) }
    };
    lists.iter().enumerate().map(set).collect()
}

/// `tried` has the CPUs of a thread that asked for `set`, or the refusal.
fn check(number: usize, set: &CpuSet, tried: io::Result<CpuSet>) -> io::Result<()> {
    match tried {
        Ok(had) if had == *set => Ok(()),
        Ok(had) => {
            let missing = set.without(&had);
            Err(invalid(format!(
                "cpu_sets: of set {number} (CPUs {set}) the machine does not have, or the process may not use, CPUs {missing}"
            )))
        }
        Err(refused) if refused.kind() == io::ErrorKind::InvalidInput => Err(invalid(format!(
            "cpu_sets: of set {number} (CPUs {set}) the machine has no CPU that the process may use: {refused}"
        ))),
        Err(refused) => Err(io::Error::new(
            refused.kind(),
            format!("cpu_sets: a thread can't be bound to set {number} (CPUs {set}): {refused}"),
        )),
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        cpus.iter().for_each(|&cpu| set.add(cpu));
        set
    }

    #[test]
    fn sets_are_shown_as_the_kernel_shows_them() {
        let shown = |cpus: &[usize]| set(cpus).to_string();
        assert_eq!(shown(&[]), "");
        assert_eq!(shown(&[0]), "0");
        assert_eq!(shown(&[1, 0, 2, 3, 8, 63, 64, 1023]), "0-3,8,63-64,1023");
        assert_eq!(shown(&(0..CPUS).collect::<Vec<_>>()), "0-1023");
    }

    /// Fails if there is another error, or none; each error names what was asked for.
    #[test]
    fn what_is_no_list_of_sets_is_an_error_that_names_it() {
        let refusal = |lists: &[Vec<usize>], procs| {
            let refused = parse(lists, procs).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            refused.to_string()
        };
        assert_eq!(refusal(&[], None), "cpu_sets: there is no set");
        assert_eq!(refusal(&[vec![0], vec![]], None), "cpu_sets: set 1 is empty");
        assert_eq!(
            refusal(&[vec![0], vec![3, 1024]], None),
            "cpu_sets: CPU 1024 of set 1 is not within 0..=1023"
        );
        assert_eq!(refusal(&[vec![0], vec![1], vec![2]], Some(2)), "cpu_sets: there are 3 sets for 2 Ps");
        assert_eq!(*parse(&[vec![1, 0, 1]], Some(2)).unwrap(), [set(&[0, 1])]);
    }

    /// Fails if a set is accepted from which the kernel leaves CPUs out, or if a refusal does not say what was tried.
    #[test]
    fn what_the_kernel_does_not_give_is_an_error_that_names_it() {
        let asked = set(&[0, 6, 7]);
        assert!(check(1, &asked, Ok(asked)).is_ok());
        let refusal = |tried| check(1, &asked, tried).unwrap_err();
        let refused = refusal(Ok(set(&[0])));
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(
            refused.to_string(),
            "cpu_sets: of set 1 (CPUs 0,6-7) the machine does not have, or the process may not use, CPUs 6-7"
        );
        let refused = refusal(Err(io::Error::from_raw_os_error(libc::EINVAL)));
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let text = refused.to_string();
        assert!(text.starts_with("cpu_sets: of set 1 (CPUs 0,6-7) the machine has no CPU"), "{text}");
        let refused = refusal(Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("bound to set 1 (CPUs 0,6-7)"), "{refused}");
    }

    /// Fails if a P beyond the list has no set, or if two Ps with equal sets seem to differ.
    #[test]
    fn ps_beyond_the_sets_begin_again_and_equal_sets_are_one() {
        let sets = CpuSets::of(set(&[0]), Box::new([set(&[0]), set(&[1]), set(&[0])]));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|p| sets.of_p(p)), [0, 1, 0, 0, 1, 0]);
        assert_eq!(*sets.set(sets.of_p(1023)), set(&[0]), "1023 is 0 of three");
    }
}
