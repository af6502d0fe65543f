//! The attributes of [gmp](https://docs.rs/gmp): [`macro@main`] and [`macro@test`]. Programs get them through gmp's feature
//! `macros`, as `gmp::main` and `gmp::test`.
//!
//! Without `syn`: an attribute only needs to find the function's name, result and body.

use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenStream, TokenTree};

/// Runs `main` as the first goroutine of a runtime, as `gmp::run` does.
///
/// The word `unsafe` in the attribute is the promise that `gmp::run` requires: that all code in goroutines keeps the contract
/// of `gmp::migration`. Without the word the attribute does not compile.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
/// #[gmp::main(unsafe)]
/// fn main() {
///     let answer = gmp::go(|| 6 * 7);
///     assert_eq!(answer.join().unwrap(), 42);
/// }
/// ```
///
/// `main` may return any type that a `main` may have in std, for instance a `Result`: an error is printed, and the process ends
/// with status 1. After `unsafe` there may be settings of `gmp::RuntimeBuilder`, by their names: `procs`, `low_share`,
/// `stack_size`, `guard_size`, `max_stack_bytes`, `max_threads`, `max_file_calls`, `max_lookups`, `thread_keep_alive`,
/// `thread_name`, `shutdown_timeout`, `on_thread_start`, `policy`, `cpu_sets`.
///
/// ```
/// use std::error::Error;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// #[gmp::main(unsafe, procs = 2, stack_size = 256 << 10)]
/// fn main() -> Result<(), Box<dyn Error>> {
///     assert_eq!(gmp::procs(), 2);
///     let number: u32 = "17".parse()?;
///     assert_eq!(number, 17);
///     Ok(())
/// }
/// ```
///
/// Without the promise:
///
/// ```compile_fail
/// #[gmp::main]
/// fn main() {}
/// ```
///
/// The word is unsafe code of the program's own: a crate with `#![forbid(unsafe_code)]` can't use the attribute, and all other
/// ways to start a runtime are unsafe, too. Such a crate can be the program's library, for instance, but not the crate with
/// `main`. With `#![deny(unsafe_code)]`, `main` may be an exception.
///
/// ```compile_fail
/// #![forbid(unsafe_code)]
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// #[gmp::main(unsafe)]
/// fn main() {}
/// ```
///
/// ```compile_fail
/// #![deny(unsafe_code)]
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// #[gmp::main(unsafe)]
/// fn main() {}
/// ```
///
/// ```
/// #![deny(unsafe_code)]
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// #[gmp::main(unsafe)]
/// #[allow(unsafe_code)]
/// fn main() {}
/// ```
///
/// `main` takes no arguments, and is not `async`: in a goroutine every call that waits parks.
///
/// ```compile_fail
/// #[gmp::main(unsafe)]
/// async fn main() {}
/// ```
///
/// ```compile_fail
/// // There is no such setting.
/// #[gmp::main(unsafe, flavor = 1)]
/// fn main() {}
/// ```
///
/// ```compile_fail
/// // Each setting once, except for `on_thread_start`, which adds a function each time.
/// #[gmp::main(unsafe, procs = 1, procs = 2)]
/// fn main() {}
/// ```
///
/// If the program has gmp under another name, or re-exports it, `crate` says where: it is the path of the module that has
/// `Runtime`. The default is `::gmp`.
///
/// ```
/// mod outer {
///     pub use gmp as inner;
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// #[outer::inner::main(unsafe, crate = crate::outer::inner)]
/// fn main() {
///     gmp::yield_now();
/// }
/// ```
///
/// The promise covers only the start of the runtime: a setting that calls an `unsafe fn` needs a block of its own.
///
/// ```compile_fail,E0133
/// unsafe fn procs() -> usize {
///     2
/// }
///
/// #[gmp::main(unsafe, procs = procs())]
/// fn main() {}
/// ```
///
/// # Panics
/// `main` panics if `gmp::run` does.
#[proc_macro_attribute]
pub fn main(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand(Attribute::Main, settings, item)
}

/// Runs a test as the first goroutine of a runtime of its own: [`macro@main`], with the same promise and settings, for a
/// function that would be a `#[test]`.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// #[gmp::test(unsafe, procs = 1)]
/// fn a_sleep_lets_others_run() {
///     let other = gmp::go(|| 1);
///     gmp::time::sleep(std::time::Duration::from_millis(1));
///     assert!(other.is_finished());
/// }
/// # fn main() {}
/// ```
///
/// A test whose body calls `gmp::goexit` has failed, as in Go: the attribute's function panics when the goroutine has ended.
///
/// ```compile_fail
/// #[gmp::test(procs = 1)]
/// fn without_the_promise() {}
/// # fn main() {}
/// ```
#[proc_macro_attribute]
pub fn test(settings: TokenStream, item: TokenStream) -> TokenStream {
    expand(Attribute::Test, settings, item)
}

/// The setters of `RuntimeBuilder` that an attribute may name.
const SETTINGS: [&str; 14] = [
    "procs",
    "low_share",
    "stack_size",
    "guard_size",
    "max_stack_bytes",
    "max_threads",
    "max_file_calls",
    "max_lookups",
    "thread_keep_alive",
    "thread_name",
    "shutdown_timeout",
    "on_thread_start",
    "policy",
    "cpu_sets",
];

#[derive(Copy, Clone)]
enum Attribute {
    Main,
    Test,
}

impl Attribute {
    fn name(self) -> &'static str {
        match self {
            Attribute::Main => "gmp::main",
            Attribute::Test => "gmp::test",
        }
    }
}

/// The reason why the attribute does not compile, and the place.
struct Refusal {
    text: String,
    at: Span,
}

fn refuse<T>(at: Span, text: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { text: text.into(), at })
}

impl Refusal {
    fn compile_error(self) -> TokenStream {
        let mut text = proc_macro::Literal::string(&self.text);
        text.set_span(self.at);
        let text = Group::new(Delimiter::Brace, TokenStream::from(TokenTree::from(text)));
        let path = ":: core :: compile_error !".parse::<TokenStream>().expect("a path");
        let tokens = path.into_iter().chain([TokenTree::from(text)]);
        tokens
            .map(|mut token| {
                token.set_span(self.at);
                token
            })
            .collect()
    }
}

fn expand(attribute: Attribute, settings: TokenStream, item: TokenStream) -> TokenStream {
    let expanded = Settings::of(attribute, settings).and_then(|settings| {
        let function = Function::of(attribute, item.clone())?;
        Ok(function.in_a_runtime(attribute, settings))
    });
    expanded.unwrap_or_else(|refusal| {
        // The function is emitted as well, so that its absence causes no further errors.
        let mut tokens = refusal.compile_error();
        tokens.extend(item);
        tokens
    })
}

/// The contents of the attribute's parentheses.
struct Settings {
    /// The word `unsafe`.
    promise: Ident,
    /// The path of the module in which `Runtime` is.
    path: TokenStream,
    /// The calls of the builder's setters.
    calls: TokenStream,
}

impl Settings {
    fn of(attribute: Attribute, settings: TokenStream) -> Result<Self, Refusal> {
        let name = attribute.name();
        let mut tokens = settings.into_iter().peekable();
        let promise = match tokens.next() {
            Some(TokenTree::Ident(word)) if word.to_string() == "unsafe" => word,
            other => {
                return refuse(
                    other.map_or_else(Span::call_site, |token| token.span()),
                    format!(
                        "#[{name}] starts a runtime, which is unsafe: a goroutine may go on on another thread after each call \
                         that parks, and such a call may unwind. Read the contract, `gmp::migration` in gmp's documentation \
                         (`cargo doc --open -p gmp`); if all code that runs in goroutines keeps it, write #[{name}(unsafe)]"
                    ),
                );
            }
        };
        let path = "::gmp".parse().expect("a path");
        let mut settings = Settings { promise, path, calls: TokenStream::new() };
        let mut given = Vec::new();
        loop {
            match tokens.next() {
                None => return Ok(settings),
                Some(TokenTree::Punct(comma)) if comma.as_char() == ',' => {}
                Some(other) => return refuse(other.span(), format!("#[{name}]: a comma is expected here")),
            }
            // A comma at the end.
            let Some(token) = tokens.next() else { return Ok(settings) };
            let word = token.to_string();
            let setting = match token {
                TokenTree::Ident(setting) if word == "crate" || SETTINGS.contains(&&*word) => setting,
                other => {
                    return refuse(
                        other.span(),
                        format!("#[{name}]: there is no setting {other}, but {}, crate", SETTINGS.join(", ")),
                    );
                }
            };
            if !matches!(tokens.next(), Some(TokenTree::Punct(equals)) if equals.as_char() == '=') {
                return refuse(setting.span(), format!("#[{name}]: write {setting} = VALUE"));
            }
            // Each call of `on_thread_start` adds a function; for another setting the builder would keep the last value.
            if word != "on_thread_start" && given.contains(&word) {
                return refuse(setting.span(), format!("#[{name}]: {setting} is set twice"));
            }
            let (mut value, mut angles) = (TokenStream::new(), Angles::default());
            while let Some(token) = tokens.next_if(|token| !angles.end_before(token)) {
                angles.pass(&token);
                value.extend([token]);
            }
            if value.is_empty() {
                return refuse(setting.span(), format!("#[{name}]: write {setting} = VALUE"));
            }
            if word == "crate" {
                settings.path = value;
            } else {
                let dot = TokenTree::from(Punct::new('.', Spacing::Alone));
                let value = TokenTree::from(Group::new(Delimiter::Parenthesis, value));
                settings.calls.extend([dot, TokenTree::from(setting), value]);
            }
            given.push(word);
        }
    }
}

/// How deep a place in an expression is within the `<>` of generic arguments, whose commas separate no settings.
///
/// A `<` opens arguments within other arguments, in the type after `as`, and where no operand comes before it: after `::`, an
/// operator, or nothing. After any other operand it compares, or shifts.
#[derive(Default)]
struct Angles {
    depth: usize,
    /// Whether the place is in the path after `as`.
    casts: bool,
    before: Option<TokenTree>,
}

impl Angles {
    /// Returns `true` if `token` is a comma after the expression.
    fn end_before(&self, token: &TokenTree) -> bool {
        self.depth == 0 && punct(token) == Some(',')
    }

    fn pass(&mut self, token: &TokenTree) {
        // `<`: it may be the second one of a shift; `=` and `-`: of an arrow; `?` ends an operand.
        let before = self.before.as_ref().map(punct);
        match punct(token) {
            Some('<')
                if self.depth > 0 || self.casts || !matches!(before, Some(None | Some('?' | '<' | '>'))) =>
            {
                self.depth += 1
            }
            Some('>') if !matches!(before, Some(Some('-' | '='))) => {
                self.depth = self.depth.saturating_sub(1)
            }
            _ => {}
        }
        self.casts = match token {
            TokenTree::Ident(_) => self.casts || is_word(token, "as"),
            token => self.casts && punct(token) == Some(':'),
        };
        self.before = Some(token.clone());
    }
}

fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

fn punct(token: &TokenTree) -> Option<char> {
    if let TokenTree::Punct(punct) = token { Some(punct.as_char()) } else { None }
}

/// Returns the tokens as written: without the groups that a `macro_rules!` makes of its fragments.
fn written(tokens: TokenStream) -> TokenStream {
    let tokens = tokens.into_iter();
    tokens
        .flat_map(|token| match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => written(group.stream()),
            token => token.into(),
        })
        .collect()
}

/// A function without parameters.
struct Function {
    /// The attributes and the visibility, as written.
    before: TokenStream,
    name: Ident,
    /// The result type with its arrow, and the `where` clause; empty if there is neither.
    result: TokenStream,
    body: Group,
}

impl Function {
    fn of(attribute: Attribute, item: TokenStream) -> Result<Self, Refusal> {
        let attribute = attribute.name();
        let wrong =
            |at| refuse(at, format!("#[{attribute}] stands before a function `fn name() ..` with a body"));
        let (mut tokens, mut before) = (written(item).into_iter(), TokenStream::new());
        let keyword = loop {
            match tokens.next() {
                Some(TokenTree::Ident(word)) if word.to_string() == "fn" => break word,
                Some(TokenTree::Ident(word)) if word.to_string() == "async" => {
                    return refuse(
                        word.span(),
                        format!(
                            "#[{attribute}]: not for `async`: what waits in a goroutine parks. Write `fn`"
                        ),
                    );
                }
                Some(TokenTree::Ident(word))
                    if ["unsafe", "extern", "const"].contains(&&*word.to_string()) =>
                {
                    return wrong(word.span());
                }
                Some(token) => before.extend([token]),
                None => return wrong(Span::call_site()),
            }
        };
        let Some(TokenTree::Ident(name)) = tokens.next() else { return wrong(keyword.span()) };
        match tokens.next() {
            Some(TokenTree::Group(parameters))
                if parameters.delimiter() == Delimiter::Parenthesis && parameters.stream().is_empty() => {}
            Some(other) => {
                return refuse(
                    other.span(),
                    format!("#[{attribute}]: `{name}` has no parameters and no generics"),
                );
            }
            None => return wrong(name.span()),
        }
        let mut rest: Vec<_> = tokens.collect();
        match rest.pop() {
            Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                Ok(Function { before, name, result: rest.into_iter().collect(), body })
            }
            _ => wrong(name.span()),
        }
    }

    /// Returns `false` if the function returns `()`, written or not, or never returns.
    fn tells(&self) -> bool {
        let result = self.result.clone().into_iter().take_while(|token| !is_word(token, "where"));
        let behind_the_arrow: Vec<_> = result.skip(2).collect();
        match &behind_the_arrow[..] {
            [] => false,
            [TokenTree::Punct(never)] => never.as_char() != '!',
            [TokenTree::Group(unit)] => {
                unit.delimiter() != Delimiter::Parenthesis || !unit.stream().is_empty()
            }
            _ => true,
        }
    }

    /// Returns the same function, which starts a runtime and runs the body there.
    ///
    /// The body becomes an inner function of the same name. Its result is reported (`Termination`) in the goroutine, as an
    /// error need not be `Send`. A function that returns `()`, or never returns, has no result: `#[should_panic]` needs that,
    /// and code after `!` would never be reached.
    ///
    /// Only the start of the runtime is in the `unsafe` block: the values of the settings are the program's code.
    fn in_a_runtime(self, attribute: Attribute, settings: Settings) -> TokenStream {
        let (result, main) = match self.tells() {
            true => ("-> ::std::process::ExitCode", "|| ::std::process::Termination::report(NAME())"),
            false => ("", "|| { NAME(); }"),
        };
        let (test, run) = match attribute {
            Attribute::Main => ("", "run"),
            Attribute::Test => ("#[::core::prelude::v1::test]", "run_test"),
        };
        // The bindings have names that no program uses: a constant of such a name would be a pattern.
        let template = format!(
            "{test} BEFORE fn NAME() {result} {{
                fn NAME() RESULT BODY
                let __gmp_builder = PATH::Runtime::builder() SETTINGS;
                match UNSAFE {{
                    ::core::result::Result::Ok(__gmp_runtime) => __gmp_runtime.{run}({main}),
                    ::core::result::Result::Err(__gmp_refused) => ::core::panic!(\"{}: {{__gmp_refused}}\"),
                }}
            }}",
            attribute.name()
        );
        let holes = [
            ("BEFORE", self.before),
            ("NAME", TokenTree::from(self.name).into()),
            ("RESULT", self.result),
            ("BODY", TokenTree::from(self.body).into()),
            ("UNSAFE", under_promise(settings.promise, "__gmp_builder.build()")),
            ("PATH", settings.path),
            ("SETTINGS", settings.calls),
        ];
        fill(template.parse().expect("the template is Rust"), &holes)
    }
}

/// Returns an `unsafe` block around `call` that counts as the program's code: its braces have the place of the attribute, but
/// do not belong to an expansion. With other braces the compiler would think that this crate has written the block, and
/// `#![forbid(unsafe_code)]` would let it pass. The block does not begin at the word `unsafe`: clippy looks for the comment of
/// such a block, and not before the attribute.
fn under_promise(promise: Ident, call: &str) -> TokenStream {
    let call = call.parse().expect("a call");
    let mut block = Group::new(Delimiter::Brace, fill(call, &[]));
    block.set_span(promise.span().located_at(Span::call_site()));
    [TokenTree::from(promise), block.into()].into_iter().collect()
}

/// Fills each hole with the program's tokens as they were written, so that errors show the place in the program. The
/// rest is hygienic: a binding of the template does not clash with a name of the program's.
fn fill(template: TokenStream, holes: &[(&str, TokenStream)]) -> TokenStream {
    let mut filled = TokenStream::new();
    for mut token in template {
        let hole = match &token {
            TokenTree::Ident(word) => holes.iter().find(|(hole, _)| word.to_string() == *hole),
            _ => None,
        };
        if let Some((_, tokens)) = hole {
            filled.extend(tokens.clone());
            continue;
        }
        if let TokenTree::Group(group) = token {
            token = Group::new(group.delimiter(), fill(group.stream(), holes)).into();
        }
        token.set_span(Span::mixed_site());
        filled.extend([token]);
    }
    filled
}
