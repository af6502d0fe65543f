//! As many mappings as a test needs.

use crate::skipped;
use std::ptr;

const PAGE: usize = 4096;

/// Returns how many mappings a process may have, if a test can have so many.
pub fn most_mappings() -> Option<usize> {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let most = most.trim().parse().unwrap();
    if most > 1 << 18 {
        skipped(format_args!("there may be {most} mappings"));
        return None;
    }
    Some(most)
}

/// All mappings that this process may have but one: pages that differ from their neighbours.
pub struct AllMappings {
    next: *mut libc::c_void,
    pages: usize,
}

impl AllMappings {
    /// Takes them; `most` is how many mappings there may be.
    pub fn begin(most: usize) -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a mapping at an address of the kernel's choice.
        let next = unsafe { libc::mmap(ptr::null_mut(), most * PAGE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(next, libc::MAP_FAILED);
        let full = (1..most).step_by(2).any(|page| {
            // SAFETY: a page of that mapping.
            unsafe { libc::mprotect(next.wrapping_byte_add(page * PAGE), PAGE, libc::PROT_READ) != 0 }
        });
        assert!(full, "as many mappings as there may be");
        AllMappings { next, pages: most }
    }

    /// Gives one mapping back.
    pub fn give_one_back(&mut self) {
        // SAFETY: a page of that mapping, which is a mapping of its own.
        assert_eq!(unsafe { libc::munmap(self.next, PAGE) }, 0);
        self.next = self.next.wrapping_byte_add(PAGE);
        self.pages -= 1;
    }
}

impl Drop for AllMappings {
    fn drop(&mut self) {
        // SAFETY: what is left of that mapping.
        assert_eq!(unsafe { libc::munmap(self.next, self.pages * PAGE) }, 0);
    }
}
