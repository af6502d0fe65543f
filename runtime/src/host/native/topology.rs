//! Which CPUs share their last-level cache, according to `/sys/devices/system/cpu`. Read once in a process.
//!
//! A cache has the number of the lowest CPU online that it serves. A CPU for which nothing can be read has a cache of its own.
//! If nothing can be read for any CPU, or the list of CPUs can't be read, all CPUs count as sharing one cache, as they do if
//! all CPUs online share one.
//!
//! This file also finds out how many threads of the process the machine runs at the same time.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const CPUS: &str = "/sys/devices/system/cpu";

/// The last-level cache of each CPU. Empty if all CPUs share one.
static CACHES: OnceLock<Box<[u32]>> = OnceLock::new();

/// `CACHES` is not empty.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Reads the files. Later calls do nothing. Before the first call all CPUs share one cache, as far as Ms know.
pub(super) fn prepare() {
    let caches = CACHES.get_or_init(|| read(Path::new(CPUS)));
    if !caches.is_empty() {
        // Relaxed: as in `has_several_caches`.
        SEVERAL.store(true, Relaxed);
    }
}

/// Returns the CPU on which the caller runs, for now. Zero if the kernel does not say.
pub(super) fn cpu() -> u32 {
    // SAFETY: no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Returns `true` if the CPUs do not all share one cache.
#[inline]
pub(super) fn has_several_caches() -> bool {
    // Relaxed: the caches are read through `CACHES`.
    SEVERAL.load(Relaxed)
}

/// Returns the number of the CPU's cache.
pub(super) fn cache_of(cpu: u32) -> u32 {
    CACHES.get().and_then(|caches| caches.get(cpu as usize)).copied().unwrap_or(0)
}

/// Returns how many threads of the process the machine runs at the same time; `Err`: an upper bound, as the quotas could not be
/// read.
pub(super) fn parallelism() -> Result<usize, usize> {
    let could_be_read = quotas_can_be_read();
    // The smaller of the number of CPUs in the calling thread's affinity mask and of the quotas of its cgroup and
    // of all visible cgroups above (v1 and v2), each rounded down, and at least one.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Asked again: the table of descriptors may have been full just then.
    if could_be_read && quotas_can_be_read() { Ok(threads) } else { Err(threads) }
}

/// Returns `true` if the quotas' files can be opened: std takes a quota whose file it can't open for none. It opens one file at
/// a time: the first of these, then files below the second.
fn quotas_can_be_read() -> bool {
    static SOURCES: [Source; 2] = [Source::new(), Source::new()];
    let paths = ["/proc/self/cgroup", "/sys/fs/cgroup"].map(Path::new);
    SOURCES.iter().zip(paths).all(|(source, path)| source.can_be_read(path))
}

/// A file or folder for reading quotas, which some machines do not have.
struct Source {
    was_there: AtomicBool,
}

impl Source {
    const fn new() -> Self {
        Source { was_there: AtomicBool::new(false) }
    }

    /// Returns `true` if the source can be opened, or does not exist. A source that could once be opened exists: the process
    /// may have lost access to it since, by chroot or by rights that it gave up, and the quotas hold all the same.
    fn can_be_read(&self, path: &Path) -> bool {
        // Relaxed, here and below: the flag publishes nothing.
        match File::open(path) {
            Ok(_there) => {
                self.was_there.store(true, Relaxed);
                true
            }
            Err(refused) => {
                let too_many =
                    [libc::EMFILE, libc::ENFILE, libc::ENOMEM].map(Some).contains(&refused.raw_os_error());
                !too_many && !self.was_there.load(Relaxed)
            }
        }
    }
}

/// Reads two files if one cache serves all CPUs, as on most machines; else some four small files for each cache, not for each
/// CPU: one CPU's files name all CPUs that share its cache.
fn read(cpus: &Path) -> Box<[u32]> {
    let online = text(&cpus.join("online")).and_then(|list| parse_list(&list)).unwrap_or_default();
    if serves_all(cpus, &online) {
        return Box::default();
    }
    let (mut caches, mut tells) = (vec![None; 0], false);
    for cpu in online {
        if caches.get(cpu).is_some_and(Option::is_some) {
            continue;
        }
        let levels = (0..).map_while(|index| {
            let folder = cpus.join(format!("cpu{cpu}/cache/index{index}"));
            Some((text(&folder.join("level"))?, text(&folder.join("shared_cpu_list"))?))
        });
        let sharers = last_level(cpu, levels);
        tells |= sharers.is_some();
        for sharer in sharers.unwrap_or_else(|| vec![cpu]) {
            if caches.len() <= sharer {
                caches.resize(sharer + 1, None);
            }
            caches[sharer] = Some(cpu as u32);
        }
    }
    let mut known = caches.iter().flatten();
    let first = known.next();
    if !tells || known.all(|cache| Some(cache) == first) {
        return Box::default();
    }
    // A CPU that was offline, or a number without a CPU.
    caches.into_iter().enumerate().map(|(cpu, cache)| cache.unwrap_or(cpu as u32)).collect()
}

/// Returns `true` if there is one CPU, or a cache of the first CPU serves all that are online: then each cache of a higher
/// level does, too. The function looks at the fourth cache, which is mostly the last one: two of the first level and one of the
/// second come before it.
fn serves_all(cpus: &Path, online: &[usize]) -> bool {
    const INDEX: usize = 3;
    let [first, others @ ..] = online else { return true };
    if others.is_empty() {
        return true;
    }
    let list = cpus.join(format!("cpu{first}/cache/index{INDEX}/shared_cpu_list"));
    let sharers = text(&list).and_then(|list| parse_list(&list)).unwrap_or_default();
    online.iter().all(|cpu| sharers.binary_search(cpu).is_ok())
}

/// Reads a file of `/sys`, which is a page at most and is there as a whole at the first read.
fn text(path: &Path) -> Option<String> {
    let mut page = [0; 4096];
    let len = File::open(path).ok()?.read(&mut page).ok()?;
    std::str::from_utf8(&page[..len]).ok().map(str::to_owned)
}

/// Returns the CPUs that share the CPU's cache of the highest level, from pairs of `level` and `shared_cpu_list`.
fn last_level(cpu: usize, levels: impl Iterator<Item = (String, String)>) -> Option<Vec<usize>> {
    let known =
        levels.filter_map(|(level, list)| Some((level.trim().parse::<u32>().ok()?, parse_list(&list)?)));
    known.filter(|(_, list)| list.contains(&cpu)).max_by_key(|(level, _)| *level).map(|(_, list)| list)
}

/// Parses the kernel's form of a set of CPUs, as in `0-3,8,10-11`. `None` if the text is not that.
fn parse_list(text: &str) -> Option<Vec<usize>> {
    /// More than any kernel is built for.
    const MOST: usize = 1 << 16;
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_list("0-3,8,10-11\n").unwrap(), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_list("\n").unwrap(), []);
        for wrong in ["x", "3-1", "1-", "-1", "0-99999999999", "0-70000"] {
            assert_eq!(parse_list(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_highest_level_counts() {
        let levels = [("1", "0"), ("1", "0"), ("3", "0-1,4"), ("2", "0"), ("4", "nonsense"), ("5", "7")];
        let levels = levels.map(|(level, list)| (level.to_owned(), list.to_owned()));
        assert_eq!(last_level(0, levels.into_iter()).unwrap(), [0, 1, 4]);
        assert_eq!(last_level(0, std::iter::empty()), None);
    }

    /// Fails where a process that has left its files behind counts as one without quotas.
    #[test]
    fn what_was_once_there_is_not_gone() {
        let machine = Machine::new("0");
        let (path, source) = (machine.0.join("quota"), Source::new());
        assert!(source.can_be_read(&path), "there is none");
        fs::write(&path, "1").unwrap();
        assert!(source.can_be_read(&path));
        fs::remove_file(&path).unwrap();
        assert!(!source.can_be_read(&path), "it was there");
        assert!(Source::new().can_be_read(&path), "another one was not");
    }

    /// A machine that is played in a folder.
    struct Machine(PathBuf);

    impl Machine {
        fn new(online: &str) -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let number = COUNT.fetch_add(1, Relaxed);
            let root = std::env::temp_dir().join(format!("gmp-topology-{}-{number}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            fs::write(root.join("online"), online).unwrap();
            Machine(root)
        }

        /// A CPU with these caches: their levels, and the CPUs that share them.
        fn cpu(self, cpu: usize, caches: &[(&str, &str)]) -> Self {
            for (index, (level, list)) in caches.iter().enumerate() {
                let folder = self.0.join(format!("cpu{cpu}/cache/index{index}"));
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("level"), format!("{level}\n")).unwrap();
                fs::write(folder.join("shared_cpu_list"), format!("{list}\n")).unwrap();
            }
            self
        }

        /// CPUs of which these share a last-level cache, and each has another one of its own.
        fn sharing(mut self, list: &str) -> Self {
            for cpu in parse_list(list).unwrap() {
                self = self.cpu(cpu, &[("1", &cpu.to_string()), ("2", &cpu.to_string()), ("3", list)]);
            }
            self
        }

        fn without(self, file: &str) -> Self {
            fs::remove_file(self.0.join(file)).unwrap();
            self
        }

        fn read(&self) -> Box<[u32]> {
            read(&self.0)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            // As far as it goes.
            let _removed = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn eight_cores_under_two_caches_are_two_groups() {
        let machine = Machine::new("0-7\n").sharing("0-3").sharing("4-7");
        assert_eq!(*machine.read(), [0, 0, 0, 0, 4, 4, 4, 4]);
    }

    /// Fails where the two threads of a core, which have each other's number far away, are in different groups, or the cores'
    /// own caches make groups.
    #[test]
    fn threads_of_a_core_are_in_the_group_of_its_cache() {
        let mut machine = Machine::new("0-7\n");
        for core in 0..4 {
            let (core_list, group) =
                (format!("{core},{}", core + 4), if core < 2 { "0-1,4-5" } else { "2-3,6-7" });
            for cpu in [core, core + 4] {
                machine = machine
                    .cpu(cpu, &[("1", &core_list), ("1", &core_list), ("2", &core_list), ("3", group)]);
            }
        }
        assert_eq!(*machine.read(), [0, 0, 2, 2, 0, 0, 2, 2]);
    }

    /// Fails where all share one cache, and CPUs that are not there seem to have another one.
    #[test]
    fn cpus_that_are_offline_and_holes_in_the_numbers_make_no_groups() {
        assert_eq!(*Machine::new("4-5,9\n").sharing("4-5,9").read(), []);
        let two = Machine::new("1,3-4,6\n").sharing("1,3").sharing("4,6");
        assert_eq!(*two.read(), [0, 1, 2, 1, 4, 5, 4]);
    }

    #[test]
    fn a_machine_that_tells_nothing_or_nonsense_has_one_cache() {
        assert_eq!(read(Path::new("/nowhere")), Box::default());
        assert_eq!(*Machine::new("0-3\n").read(), [], "no caches");
        for online in ["", "\n", "x", "3-1", "0-99999999999"] {
            assert_eq!(*Machine::new(online).sharing("0-1").sharing("2-3").read(), [], "{online:?}");
        }
        let nonsense = [("three", "0-1"), ("3", "a-b"), ("", "")];
        assert_eq!(*Machine::new("0-1\n").cpu(0, &nonsense).cpu(1, &nonsense).read(), []);
    }

    /// Fails where a file that is missing hides more than its cache, or the CPU joins another one's group.
    #[test]
    fn what_is_missing_of_one_cpu_concerns_that_one_alone() {
        let machine = || Machine::new("0-3\n").sharing("0-1").cpu(2, &[("3", "2-3")]).cpu(3, &[("3", "2-3")]);
        assert_eq!(*machine().read(), [0, 0, 2, 2]);
        // Number 3 tells of the cache.
        let without = machine().without("cpu2/cache/index0/level");
        assert_eq!(*without.read(), [0, 0, 3, 3]);
        let without =
            machine().without("cpu2/cache/index0/level").without("cpu3/cache/index0/shared_cpu_list");
        assert_eq!(*without.read(), [0, 0, 2, 3]);
        // Of number 0 the second level is the last one that is known; then number 1 tells of both.
        let without = machine().without("cpu0/cache/index2/shared_cpu_list");
        assert_eq!(*without.read(), [1, 1, 2, 2]);
    }

    /// Fails where more is read than the list of the first CPU's fourth cache, which serves all; or where that cache serves
    /// some alone, and no more is read.
    #[test]
    fn a_cache_of_all_is_found_out_by_two_files() {
        let first_cpu = |list| [("1", "0"), ("1", "0"), ("2", "0"), ("nonsense", list)];
        assert_eq!(*Machine::new("0-1,3\n").cpu(0, &first_cpu("0-3")).read(), []);
        assert_eq!(*Machine::new("0-1,3\n").cpu(0, &first_cpu("0-1")).read(), [0, 1, 2, 3]);
    }

    /// Fails where a file of each CPU is read: of 1024 CPUs, eight tell of all.
    #[test]
    fn one_cpu_tells_of_all_that_share_its_cache() {
        let mut machine = Machine::new("0-1023\n");
        for first in (0..1024).step_by(128) {
            machine = machine.cpu(first, &[("3", &format!("{first}-{}", first + 127))]);
        }
        let caches = machine.read();
        assert_eq!(caches.len(), 1024);
        assert!(
            caches.iter().enumerate().all(|(cpu, cache)| *cache as usize == cpu / 128 * 128),
            "{caches:?}"
        );
    }

    #[test]
    fn this_machine_has_one() {
        prepare();
        let (here, known) = (cache_of(cpu()), CACHES.get().unwrap());
        assert!(known.is_empty() || known.contains(&here), "cache {here} of {known:?}");
    }
}
