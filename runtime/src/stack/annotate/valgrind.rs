//! Valgrind's client requests for stacks.
//!
//! A request is a sequence of instructions that does nothing on a CPU, and that valgrind recognizes when it translates the
//! code: rdi rotated by 3, 13, 61 and 51 bits, 128 in all, then `xchg rbx, rbx`. rax points to six words, the request and its
//! arguments; rdx holds the answer of a run without valgrind, and then valgrind's.

use std::arch::asm;

const STACK_REGISTER: usize = 0x1501;
const STACK_DEREGISTER: usize = 0x1502;

/// The number by which valgrind knows a goroutine's stack.
#[derive(Debug)]
pub(crate) struct Stack(usize);

impl Stack {
    /// A stack of so many bytes below `top` was taken.
    pub(crate) fn new(top: *mut u8, bytes: usize) -> Stack {
        Stack(request([STACK_REGISTER, top.addr() - bytes, top.addr(), 0, 0, 0]))
    }

    /// The stack is given back: nothing runs there any more.
    pub(crate) fn retire(self) {
        request([STACK_DEREGISTER, self.0, 0, 0, 0, 0]);
    }
}

#[inline(never)]
fn request(words: [usize; 6]) -> usize {
    let mut answer = 0;
    // SAFETY: on a CPU the instructions change the flags, and rdi back to itself. Valgrind reads the six words and
    // writes rdx.
    unsafe {
        asm!(
            "rol rdi, 3",
            "rol rdi, 13",
            "rol rdi, 61",
            "rol rdi, 51",
            "xchg rbx, rbx",
            in("rax") words.as_ptr(),
            inout("rdx") answer,
            out("rdi") _,
            options(nostack),
        );
    }
    answer
}
