//! Prints the public API that a JSON of rustdoc's describes, an item a line, sorted by where it stands.
//!
//! `gmp-api FILE.json`

use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(json) = std::env::args_os().nth(1) else {
        eprintln!("gmp-api: which file? One that rustdoc has written with --output-format json");
        return ExitCode::from(2);
    };
    // What every type has by blanket implementations, and the auto traits, which the types' parts decide.
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(false)
        .build();
    match api {
        Ok(api) => {
            print!("{api}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("gmp-api: {}: {error}", json.to_string_lossy());
            ExitCode::FAILURE
        }
    }
}
