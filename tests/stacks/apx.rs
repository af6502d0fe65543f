//! What the compiler that builds this test says to a build for processors with APX.
#![cfg(target_arch = "x86_64")]

use std::process::Command;

/// Compiles the library's check for `cpu`. Returns what the compiler says, if it refuses.
fn refusal(cpu: &str) -> Option<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/runtime/src/stack/apx.rs");
    let cpu = format!("-Ctarget-cpu={cpu}");
    let out = concat!("--out-dir=", env!("CARGO_TARGET_TMPDIR"));
    let output =
        Command::new("rustc").args(["--crate-type=lib", "--emit=metadata", out, &cpu, file]).output();
    let output = output.expect("the compiler is there");
    (!output.status.success()).then(|| String::from_utf8(output.stderr).expect("the compiler writes UTF-8"))
}

/// Fails if a build succeeds for a processor on which the switch would lose registers, or is refused for another processor.
#[test]
fn a_build_for_processors_with_apx_is_refused() {
    for cpu in ["diamondrapids", "novalake"] {
        let said = refusal(cpu).unwrap_or_else(|| panic!("{cpu}: nothing is said"));
        assert!(said.contains("would lose the registers r16 to r31"), "{cpu}: {said}");
    }
    for cpu in ["x86-64", "x86-64-v4", "graniterapids", "clearwaterforest", "arrowlake-s", "znver5"] {
        assert_eq!(refusal(cpu), None, "{cpu}");
    }
}
