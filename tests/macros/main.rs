#![cfg(not(gmp_loom))]
//! `#[gmp::test]` as a program's tests use it, and `#[gmp::main]` on functions that are called here.

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

// SAFETY: here and below: no goroutine keeps a thread-bound value across a blocking call.
#[gmp::test(unsafe)]
fn a_test_is_a_goroutine_that_may_start_others() {
    let others: Vec<_> = (0..10).map(|n| gmp::go(move || n)).collect();
    assert_eq!(others.into_iter().map(|other| other.join().unwrap()).sum::<i32>(), 45);
    assert_eq!(gmp::current().unwrap().name(), Some("main"));
}

#[gmp::test(unsafe, procs = 3, stack_size = 1 << 20, thread_name = "tested-".to_owned(),)]
fn settings_are_the_builders() {
    assert_eq!(gmp::procs(), 3);
    // Would end the process on a stack of 64 KiB.
    std::hint::black_box([1_u8; 128 << 10]);
    assert!(std::thread::current().name().unwrap().starts_with("tested-"));
}

thread_local! {
    static ENTERED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[gmp::test(unsafe, procs = 1, on_thread_start = || { ENTERED.set(ENTERED.get() + 1); (1, 2) })]
fn a_function_for_each_thread_is_a_setting() {
    assert_eq!(ENTERED.get(), 1);
}

#[gmp::test(unsafe, on_thread_start = || ENTERED.set(1), procs = 1, on_thread_start = || ENTERED.set(ENTERED.get() + 1))]
fn a_function_for_each_thread_may_be_set_more_than_once() {
    assert_eq!(ENTERED.get(), 2);
}

#[gmp::test(unsafe, shutdown_timeout = Duration::from_millis(20))]
fn a_test_may_return_a_result() -> Result<(), Box<dyn Error>> {
    let number: u32 = "17".parse()?;
    assert_eq!(number, 17);
    Ok(())
}

#[gmp::test(unsafe)]
#[should_panic(expected = "from the goroutine")]
fn a_panic_of_the_body_fails_the_test() {
    gmp::yield_now();
    panic!("from the goroutine");
}

#[gmp::main(unsafe, procs = 1)]
fn fails() -> io::Result<()> {
    gmp::yield_now();
    Err(io::Error::other("said by a main"))
}

#[gmp::main(unsafe)]
/// With a comment, and generic results.
pub(crate) fn returns_what_can_be_told() -> impl std::process::Termination {
    ExitCode::from(7)
}

/// Fails by an exit code that says success for an error.
#[test]
fn what_main_returns_is_told_as_std_tells_it() {
    assert_eq!(format!("{:?}", fails()), format!("{:?}", ExitCode::FAILURE));
    assert_eq!(format!("{:?}", returns_what_can_be_told()), format!("{:?}", ExitCode::from(7)));
}

/// Fails by a warning of unreachable code, which `deny` makes an error.
#[deny(warnings)]
mod without_a_value {
    #[gmp::main(unsafe, procs = 1)]
    pub fn never_returns() -> ! {
        gmp::yield_now();
        panic!("instead of a return")
    }

    #[gmp::test(unsafe)]
    #[should_panic(expected = "behind a unit")]
    fn may_write_its_unit() -> () {
        panic!("behind a unit");
    }

    #[gmp::test(unsafe)]
    #[should_panic(expected = "behind a clause")]
    fn may_have_a_clause()
    where
        u32: Copy,
    {
        panic!("behind a clause");
    }

    #[gmp::test(unsafe)]
    #[should_panic(expected = "behind a unit with a clause")]
    fn may_write_its_unit_before_a_clause() -> ()
    where
        u32: Copy,
    {
        panic!("behind a unit with a clause");
    }

    #[gmp::test(unsafe)]
    fn may_have_a_clause_behind_a_result() -> Result<(), u8>
    where
        u32: Copy,
    {
        Ok(())
    }

    #[gmp::test(unsafe)]
    #[should_panic(expected = "behind a never")]
    fn may_never_return() -> ! {
        panic!("behind a never");
    }
}

#[test]
#[should_panic(expected = "instead of a return")]
fn a_main_that_never_returns_is_one() {
    without_a_value::never_returns();
}

/// The test's runtime has no other goroutine, and the process has other tests. Fails by a hang.
#[gmp::test(unsafe)]
#[should_panic(expected = "gmp::test: the test called goexit")]
fn a_test_that_calls_goexit_has_failed() {
    let _other = gmp::go(|| gmp::time::sleep(Duration::from_secs(3600)));
    gmp::goexit();
}

/// Functions of a `macro_rules!`, whose fragments are in groups. Fails by not compiling.
// SAFETY: as above. The lint sees no comment of an `unsafe` in a macro.
#[allow(clippy::undocumented_unsafe_blocks)]
mod fragments {
    macro_rules! goroutine {
        ($(#[$attribute:meta])* $vis:vis $name:ident, $procs:expr, $result:ty, $body:block) => {
            $(#[$attribute])*
            #[gmp::test(unsafe, procs = $procs)]
            $vis fn $name() -> $result $body
        };
        ($test:item) => {
            #[gmp::test(unsafe)]
            $test
        };
    }

    goroutine!(pub of_a_block, 1 + 1, Result<(), std::num::ParseIntError>, {
        assert_eq!(gmp::procs(), 2);
        "17".parse::<u32>().map(drop)
    });

    goroutine!(
        #[should_panic(expected = "of a block")]
        of_a_unit,
        1,
        (),
        { panic!("of a block") }
    );

    goroutine!(
        fn of_an_item() {
            gmp::yield_now();
        }
    );
}

/// Constants with the names that an expansion might use. Fails by not compiling.
#[allow(non_upper_case_globals, dead_code)]
mod constants_of_the_expansion {
    const builder: u32 = 1;
    const runtime: u32 = 2;
    const refused: u32 = 3;
    static main: u32 = 4;

    #[gmp::test(unsafe)]
    fn sees_them() {
        assert_eq!([builder, runtime, refused, main], [1, 2, 3, 4]);
    }
}

/// Fails by not compiling when a comma of generic arguments ends a setting.
mod commas {
    pub trait Number<T, U> {
        const N: usize;
        fn shifted() -> usize {
            Self::N << 1
        }
    }

    impl<T, U> Number<T, U> for u8 {
        const N: usize = 1;
    }

    fn at_least<T, U>(number: usize) -> usize {
        number.max(size_of::<(T, U)>())
    }

    const FEW: usize = 2;

    trait HasSize<T, U> {
        type Size;
    }

    impl<T, U> HasSize<T, U> for () {
        type Size = usize;
    }

    type Size<T, U> = <() as HasSize<T, U>>::Size;

    #[gmp::test(
        unsafe,
        procs = at_least::<u8, Result<[u8; 1], fn() -> u8>>(0) - at_least::<Vec<u8>, ()>(0) + <u8 as Number<u8, u8>>::shifted(),
        stack_size = if FEW < 3 { 256 << 10 } else { 1 },
        max_threads = 1_u8 as Size<u8, u16> << FEW,
        thread_name = String::from("commas-"),
    )]
    fn within_arguments_separate_no_settings() {
        assert_eq!(gmp::procs(), size_of::<(u8, Result<[u8; 1], fn() -> u8>)>() - 24 + 2);
        assert!(std::thread::current().name().unwrap().starts_with("commas-"));
    }
}

#[gmp::main(unsafe, procs = 0)]
fn refused() {}

#[test]
#[should_panic(expected = "gmp::main: procs: 0 is not within 1..=1024")]
fn a_setting_that_the_builder_refuses_is_a_panic() {
    refused();
}

/// Functions with the names that an expansion might use. Fails by not compiling.
mod names_of_the_expansion {
    #[gmp::test(unsafe)]
    fn runtime() {
        gmp::yield_now();
    }

    #[gmp::test(unsafe)]
    fn builder() {
        gmp::yield_now();
    }

    #[gmp::test(unsafe)]
    fn refused() -> Result<(), std::num::ParseIntError> {
        "17".parse::<u32>().map(drop)
    }

    #[gmp::test(unsafe)]
    fn report() -> std::process::ExitCode {
        std::process::ExitCode::SUCCESS
    }
}

fn runtime() -> usize {
    3
}

fn builder() -> usize {
    64 << 10
}

#[gmp::test(unsafe, procs = runtime(), stack_size = builder())]
fn a_setting_sees_the_callers_names() {
    assert_eq!(gmp::procs(), 3);
}

/// gmp under another path, where the start of a runtime is counted.
mod counted {
    pub static STARTS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

    pub struct Runtime;

    impl Runtime {
        pub fn builder() -> gmp::RuntimeBuilder {
            STARTS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            gmp::Runtime::builder()
        }
    }
}

/// Fails by not compiling, or by a count of 0 when the setting has no effect.
#[gmp::test(unsafe, procs = 1, crate = crate::counted)]
fn the_crates_path_can_be_set() {
    assert_eq!(counted::STARTS.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(gmp::procs(), 1);
}
