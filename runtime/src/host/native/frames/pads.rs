//! Landing pads written by hand, including pads that no compiler writes: the look must say of each whether it passes, for the
//! right reason.

use super::Landmarks;
use super::code::Code;
use super::flow::Way;
use super::tables::Function;
use std::arch::naked_asm;
use std::ffi::c_void;
use std::panic::{catch_unwind, resume_unwind};

/// Stands for `panic_cannot_unwind`. The address of each such function must be its own, so their bodies differ.
#[unsafe(naked)]
extern "C" fn ends_the_process() {
    naked_asm!(".cfi_startproc", "mov eax, 1", "ud2", ".cfi_endproc")
}

/// Stands for the function that takes the payload out of the exception.
#[unsafe(naked)]
extern "C" fn takes_it_out() {
    naked_asm!(".cfi_startproc", "mov eax, 2", "ret", ".cfi_endproc")
}

#[unsafe(naked)]
extern "C" fn returns() {
    naked_asm!(".cfi_startproc", "mov eax, 3", "test edi, edi", "jne 2f", "ud2", "2: ret", ".cfi_endproc")
}

#[unsafe(naked)]
extern "C" fn never_returns() {
    naked_asm!(".cfi_startproc", "mov eax, 4", "call {}", "ud2", ".cfi_endproc", sym returns)
}

/// Returns only by its landing pad: no `ret` can be reached from its beginning, if `catch_unwind` is inlined.
#[inline(never)]
extern "C" fn returns_by_a_catch() {
    std::mem::forget(catch_unwind(|| -> () { resume_unwind(Box::new(())) }));
}

/// Makes a function that is all landing pad, and its jump table, called 30, in the given section.
macro_rules! pad {
    ($name:ident: $($code:expr),+ $(; $section:literal: $($entry:expr),+)?) => {
        #[unsafe(naked)]
        extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                $($code,)+
                ".cfi_endproc",
                $(
                    concat!(".pushsection ", $section),
                    ".balign 8",
                    "30:",
                    $($entry,)+
                    ".popsection",
                )?
                "/* {aborts} {caught} {resume} {returns} {catches} {stops} */",
                aborts = sym ends_the_process,
                caught = sym takes_it_out,
                resume = sym _Unwind_Resume,
                returns = sym returns,
                catches = sym returns_by_a_catch,
                stops = sym never_returns,
            )
        }
    };
}

unsafe extern "C-unwind" {
    fn _Unwind_Resume(exception: *mut c_void) -> !;
}

/// Returns how a throw leaves from the beginning of this function.
#[track_caller]
fn way(function: extern "C" fn()) -> Way {
    let start = function as *const () as usize;
    let landmarks = Landmarks {
        personality: 0,
        cannot_unwind: ends_the_process as *const () as usize,
        caught: [takes_it_out as *const () as usize; 2],
    };
    let code = Function::at(start).and_then(Code::of).expect("the function is in the tables");
    code.way_from(start, &[], &landmarks)
}

pad!(goes_on: "test eax, eax", "je 2f", "call {returns}", "2: call {resume}", "call {aborts}");
pad!(ends_the_process_at_last: "test eax, eax", "je 2f", "call {resume}", "2: call {returns}", "call {aborts}");
pad!(is_caught: "call {returns}", "call {caught}", "call {aborts}");
pad!(stops_on_the_way: "test eax, eax", "je 2f", "call {stops}", "call {aborts}", "2: call {resume}");
pad!(goes_on_after_a_catch: "call {catches}", "call {aborts}");
pad!(jumps_to_a_function: "jmp {returns}");
pad!(branches_to_a_function: "test eax, eax", "je {returns}", "call {resume}");
pad!(jumps_into_a_function: "jmp {returns} + 5");
pad!(branches_into_a_function: "test eax, eax", "je {returns} + 5", "call {resume}");

/// Fails by a no for a pad that certainly passes, or a yes for one that does not.
#[test]
fn calls_jumps_and_branches_are_followed() {
    for passes in [goes_on, is_caught, stops_on_the_way, jumps_to_a_function, branches_to_a_function] {
        assert_eq!(way(passes), Way::Passes, "{passes:p}");
    }
    for aborts in
        [ends_the_process_at_last, goes_on_after_a_catch, jumps_into_a_function, branches_into_a_function]
    {
        assert_eq!(way(aborts), Way::Aborts, "{aborts:p}");
    }
}

// The call is the operand of the instruction before, except for the branch into that operand.
pad!(hides_a_call: "test eax, eax", "je 2f + 2", "2: .byte 0x48, 0xb8, 0xe8", ".long {aborts} - . - 4", ".byte 0, 0, 0", "ret");
pad!(hides_a_jump: "test eax, eax", "je 2f + 1", "2: .byte 0xb8, 0xeb, 3, 0, 0", "ret", "nop", "3: call {aborts}");
pad!(is_cut_off: ".byte 0x48, 0xb8, 0");
pad!(is_no_code: ".byte 0x06");

/// Fails by a yes: the processor's instructions depend on where it enters the bytes.
#[test]
fn overlapping_instructions_hide_nothing() {
    for aborts in [hides_a_call, hides_a_jump, is_cut_off, is_no_code] {
        assert_eq!(way(aborts), Way::Aborts, "{aborts:p}");
    }
}

// bextr eax, ebx, 0: an operand of XOP looks like a branch and a return.
pad!(hides_a_call_behind_xop:
    ".byte 0x8f, 0xea, 0x78, 0x10, 0xc3, 0, 0, 0, 0", "call {aborts}", "nop", "nop", "nop", "nop", "nop", "nop",
    "call {resume}");
// xbegin: an abort of the transaction goes on at its operand.
pad!(begins_a_transaction: ".byte 0xc7, 0xf8", ".long 2f - . - 4", "call {resume}", "2: call {aborts}");

/// Fails by a yes: the processor goes on elsewhere than the instruction seems to say.
#[test]
fn instructions_that_are_rare_hide_nothing() {
    for aborts in [hides_a_call_behind_xop, begins_a_transaction] {
        assert_eq!(way(aborts), Way::Aborts, "{aborts:p}");
    }
}

/// The words through which the function's address is loaded: read-only after the relocation, as those of the GOT are.
macro_rules! holds {
    ($name:ident: $($code:expr),+) => {
        pad!($name: $($code),+; ".data.rel.ro,\"aw\"": ".quad {caught}", ".quad {returns}");
    };
}

holds!(is_caught_by_a_register:
    "push r13", "mov r13, [rip + 30f]", "2: mov rdi, rax", "call r13", "test eax, eax", "jne 3f", "pop r13", "ret",
    "3: call {aborts}");
holds!(is_caught_by_one_of_two_registers:
    "push r12", "push r14", "mov r12, [rip + 30f + 8]", "mov r14, [rip + 30f]", "call r12", "call r14", "call {aborts}");
holds!(is_caught_by_a_loaded_address: "push r15", "lea r15, [rip + {caught}]", "call r15", "call {aborts}");
holds!(is_caught_in_a_loop:
    "push r13", "sub rsp, 16", "mov r13, [rip + 30f]", "2: call {returns}", "call r13", "dec ebx", "jne 2b", "call {returns}",
    "add rsp, 16", "pop r13", "jmp {returns}", "call {aborts}");
holds!(is_caught_beside_other_names:
    "push r13", "mov r13, [rip + 30f]", "mov r12, r15", "lea rbp, [rsp + 8]", "vxorps xmm5, xmm5, xmm5", "call r13",
    "call {aborts}");

/// Fails by a no: compilers make such code of a `catch_unwind` in a loop.
#[test]
fn a_register_that_holds_what_takes_it_out_is_known() {
    for passes in [
        is_caught_by_a_register,
        is_caught_by_one_of_two_registers,
        is_caught_by_a_loaded_address,
        is_caught_in_a_loop,
        is_caught_beside_other_names,
    ] {
        assert_eq!(way(passes), Way::Passes, "{passes:p}");
    }
}

// Each of these pads would pass without one of its instructions.
holds!(another_is_loaded: "mov r13, [rip + 30f + 8]", "call r13", "call {aborts}");
holds!(another_is_loaded_too:
    "mov r13, [rip + 30f]", "test eax, eax", "je 2f", "mov r13, [rip + 30f + 8]", "2: call r13", "call {aborts}");
holds!(it_is_written_behind_the_call:
    "mov r13, [rip + 30f]", "2: call r13", "dec ebx", "je 3f", "xor r13d, r13d", "jmp 2b", "3: call {aborts}");
holds!(another_register_is_called: "mov r13, [rip + 30f]", "call r14", "call {aborts}");
holds!(a_caller_saved_one: "mov r11, [rip + 30f]", "call r11", "call {aborts}");
holds!(half_is_loaded: "mov r13d, [rip + 30f]", "call r13", "call {aborts}");
holds!(it_is_popped_and_called:
    "push rax", "mov r13, [rip + 30f]", "pop r13", "call r13", "call {aborts}");
holds!(it_is_popped_and_jumped_back:
    "mov r13, [rip + 30f]", "2: call r13", "dec ebx", "je 3f", "pop r13", "jmp 2b", "3: call {aborts}");
holds!(it_is_popped_from_elsewhere:
    "mov r13, [rip + 30f]", "pop qword ptr [rsp]", ".byte 0x41, 0x8f, 0xc5", "call r13", "call {aborts}");
holds!(it_is_exchanged: "mov r13, [rip + 30f]", "xchg rax, r13", "call r13", "call {aborts}");
holds!(it_is_written_by_a_vector_prefix:
    "mov r13, [rip + 30f]", "andn r13, rax, rcx", "call r13", "call {aborts}");
holds!(it_is_written_by_a_fourth_operand: "mov r13, [rip + 30f]", "blsr r13, rax", "call r13", "call {aborts}");
// vmovd r13d, xmm0, encoded by EVEX
holds!(a_prefix_that_is_not_read:
    "mov r13, [rip + 30f]", ".byte 0x62, 0x51, 0x7d, 0x08, 0x7e, 0xc5", "call r13", "call {aborts}");
// The instruction before hides the write, except for the branch into its operand.
holds!(the_write_is_hidden:
    "mov r13, [rip + 30f]", "test eax, eax", "je 2f + 2", "2: .byte 0x48, 0xb8, 0x45, 0x31, 0xed, 0xeb, 3, 0, 0, 0", "call r13",
    "call {aborts}");
// The code behind the catch does not matter, except for the registers that it can write.
holds!(not_all_is_known:
    "mov r13, [rip + 30f]", "call r13", ".byte 0x06");
holds!(nobody_knows_where_it_leads:
    "mov r13, [rip + 30f]", "call r13", "jmp rax");
// This pad is like `is_caught_by_a_register`, but loads a word that the program can write.
pad!(a_variable_is_loaded:
    "mov r13, [rip + 30f]", "call r13", "call {aborts}";
    ".data": ".quad {caught}");

/// Fails by a yes: the register can hold something else, or its value is not known.
#[test]
fn a_register_that_may_hold_another_is_not_known() {
    for aborts in [
        another_is_loaded,
        another_is_loaded_too,
        it_is_written_behind_the_call,
        another_register_is_called,
        a_caller_saved_one,
        half_is_loaded,
        it_is_popped_and_called,
        it_is_popped_and_jumped_back,
        it_is_popped_from_elsewhere,
        it_is_exchanged,
        it_is_written_by_a_vector_prefix,
        it_is_written_by_a_fourth_operand,
        a_prefix_that_is_not_read,
        the_write_is_hidden,
        not_all_is_known,
        nobody_knows_where_it_leads,
        a_variable_is_loaded,
    ] {
        assert_eq!(way(aborts), Way::Aborts, "{aborts:p}");
    }
}

pad!(a_table:
    "cmp rcx, 1", "ja 4f", "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {returns}", "4: call {resume}", "ud2";
    ".rodata": ".long 2b - 30b", ".long 4b - 30b", ".long -1000000");
pad!(a_table_without_a_bound:
    "lea r13, [rip + 30f]", "movsxd r9, dword ptr [r13 + 4 * r9]", "add r9, r13", "jmp r9",
    "2: call {resume}", "4: call {resume}", "ud2";
    ".rodata": ".long 2b - 30b", ".long 4b - 30b", ".long -1000000");
pad!(a_table_with_an_end_that_nobody_uses:
    "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rdx, rcx", "jmp rdx",
    "2: call {resume}", "4:";
    ".rodata": ".long 2b - 30b", ".long 4b - 30b", ".long -1000000");
pad!(a_table_named_before:
    "lea rdx, [rip + 30f]", "test eax, eax", "je 3f", "3: call {returns}", "test eax, eax", "je 5f", "nop",
    "5: movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {resume}", "4: call {resume}", "ud2";
    ".rodata": ".long 2b - 30b", ".long 4b - 30b", ".long -1000000");

/// Fails by a no: compilers make such code of the drop of an enum.
#[test]
fn tables_are_followed() {
    for passes in
        [a_table, a_table_without_a_bound, a_table_with_an_end_that_nobody_uses, a_table_named_before]
    {
        assert_eq!(way(passes), Way::Passes, "{passes:p}");
    }
}

pad!(an_entry_aborts:
    "cmp rcx, 1", "ja 4f", "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {aborts}", "4: call {resume}", "ud2";
    ".rodata": ".long 4b - 30b", ".long 2b - 30b", ".long -1000000");
pad!(an_entry_beyond_the_bound_aborts:
    "cmp rcx, 1", "ja 4f", "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {aborts}", "4: call {resume}", "ud2";
    ".rodata": ".long 4b - 30b", ".long 4b - 30b", ".long 2b - 30b", ".long -1000000");
pad!(an_entry_of_another_table_aborts:
    "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {aborts}", "4: call {resume}", "lea rax, [rip + 30f + 8]", "ud2";
    ".rodata": ".long 4b - 30b", ".long -1000000", ".long 2b - 30b - 8", ".long -1000000");
pad!(an_entry_leads_into_an_instruction:
    "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {resume}", "4: .byte 0x48, 0xb8, 0xe8", ".long {aborts} - . - 4", ".byte 0, 0, 0", "ret";
    ".rodata": ".long 2b - 30b", ".long 4b - 30b + 2", ".long -1000000");
pad!(no_entry_leads_here:
    "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {resume}", "ud2";
    ".rodata": ".long -1000000", ".long 2b - 30b", ".long -1000000");
pad!(a_table_that_is_written:
    "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {resume}", "ud2";
    ".data": ".long 2b - 30b", ".long -1000000");
// There is a sound table, which the jump does not use.
pad!(a_table_that_is_written_beside_another:
    "lea rax, [rip + 30f]", "lea rdx, [rip + {resume}]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {resume}", "ud2";
    ".rodata": ".long 2b - 30b", ".long -1000000");
pad!(another_sum:
    "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 4 * rcx]", "add rcx, rax", "jmp rcx",
    "2: call {resume}", "ud2";
    ".rodata": ".long 2b - 30b", ".long -1000000");
pad!(another_scale:
    "lea rdx, [rip + 30f]", "movsxd rcx, dword ptr [rdx + 8 * rcx]", "add rcx, rdx", "jmp rcx",
    "2: call {resume}", "ud2";
    ".rodata": ".long 2b - 30b", ".long -1000000");
pad!(any_place: "jmp rax");
pad!(any_place_in_memory: "jmp qword ptr [rax]");
pad!(a_table_of_addresses_elsewhere: ".byte 0xff, 0x24, 0xc5, 0, 0, 0, 0");

/// Fails by a yes: the jump can lead to the end of the process, or to an unknown place.
#[test]
fn what_is_no_table_or_leads_to_the_end_says_no() {
    for aborts in [
        an_entry_aborts,
        an_entry_beyond_the_bound_aborts,
        an_entry_of_another_table_aborts,
        an_entry_leads_into_an_instruction,
        no_entry_leads_here,
        a_table_that_is_written,
        a_table_that_is_written_beside_another,
        another_sum,
        another_scale,
        any_place,
        any_place_in_memory,
        a_table_of_addresses_elsewhere,
    ] {
        assert_eq!(way(aborts), Way::Aborts, "{aborts:p}");
    }
}
