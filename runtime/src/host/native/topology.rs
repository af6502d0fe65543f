//! Which CPUs share their last-level cache, as `/sys/devices/system/cpu` tells. Read once a process.
//!
//! A cache is named by the lowest CPU that it serves. If nothing can be read, all CPUs share one.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

const CPUS: &str = "/sys/devices/system/cpu";

/// The last-level cache of each CPU. Empty if all CPUs share one.
static CACHES: OnceLock<Box<[u32]>> = OnceLock::new();

/// Reads the files. Later calls do nothing.
pub(super) fn prepare() {
    CACHES.get_or_init(|| read(Path::new(CPUS)));
}

/// The CPU on which the caller runs, for now. Zero where the kernel does not tell.
pub(super) fn cpu() -> u32 {
    // SAFETY: no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Returns the number of the CPU's cache.
pub(super) fn cache_of(cpu: u32) -> u32 {
    CACHES.get().and_then(|caches| caches.get(cpu as usize)).copied().unwrap_or(0)
}

/// Reads some four small files for each cache, not for each CPU: one CPU's files tell of all that share its cache.
fn read(cpus: &Path) -> Box<[u32]> {
    let text = |path: &Path| fs::read_to_string(path).ok();
    let mut caches = vec![None; 0];
    for cpu in text(&cpus.join("online")).and_then(|list| parse_list(&list)).unwrap_or_default() {
        if caches.get(cpu).is_some_and(Option::is_some) {
            continue;
        }
        let levels = (0..).map_while(|index| {
            let folder = cpus.join(format!("cpu{cpu}/cache/index{index}"));
            Some((text(&folder.join("level"))?, text(&folder.join("shared_cpu_list"))?))
        });
        for sharer in last_level(levels).unwrap_or_else(|| vec![cpu]) {
            if caches.len() <= sharer {
                caches.resize(sharer + 1, None);
            }
            caches[sharer] = Some(cpu as u32);
        }
    }
    one_if_equal(caches.into_iter().map(|cache| cache.unwrap_or(0)).collect())
}

/// Returns an empty list if all CPUs have the same cache.
fn one_if_equal(caches: Vec<u32>) -> Box<[u32]> {
    if caches.iter().all(|cache| *cache == caches[0]) { Box::default() } else { caches.into() }
}

/// Returns the CPUs that share the cache of the highest level, from pairs of `level` and `shared_cpu_list`.
fn last_level(levels: impl Iterator<Item = (String, String)>) -> Option<Vec<usize>> {
    let known =
        levels.filter_map(|(level, list)| Some((level.trim().parse::<u32>().ok()?, parse_list(&list)?)));
    known.max_by_key(|(level, _)| *level).map(|(_, list)| list)
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
        let levels = [("1", "0"), ("1", "0"), ("3", "0-1,4"), ("2", "0"), ("4", "nonsense")];
        let levels = levels.map(|(level, list)| (level.to_owned(), list.to_owned()));
        assert_eq!(last_level(levels.into_iter()).unwrap(), [0, 1, 4]);
        assert_eq!(last_level(std::iter::empty()), None);
    }

    /// A machine of two sockets, played in a folder; and a machine that tells nothing.
    #[test]
    fn cpus_of_a_cache_have_its_number() {
        let root = std::env::temp_dir().join(format!("gmp-topology-{}", std::process::id()));
        assert_eq!(read(&root), Box::default());
        for (cpu, shared) in [(0, "0,2\n"), (1, "1,3\n")] {
            for (index, level, list) in [(0, "1\n", format!("{cpu}\n")), (1, "3\n", shared.to_owned())] {
                let folder = root.join(format!("cpu{cpu}/cache/index{index}"));
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("level"), level).unwrap();
                fs::write(folder.join("shared_cpu_list"), list).unwrap();
            }
        }
        fs::write(root.join("online"), "0-3\n").unwrap();
        let caches = read(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(*caches, [0, 1, 0, 1]);
    }

    #[test]
    fn this_machine_has_one() {
        prepare();
        let (here, known) = (cache_of(cpu()), CACHES.get().unwrap());
        assert!(known.is_empty() || known.contains(&here), "cache {here} of {known:?}");
    }
}
