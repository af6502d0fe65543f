//! A `fmt::Write` that calls a function of the test.

use std::fmt::{self, Debug, Write};

/// Calls `uses` whenever a part of the text is written to it.
struct Writer<F> {
    text: String,
    uses: F,
}

impl<F: FnMut()> Write for Writer<F> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        (self.uses)();
        self.text.push_str(part);
        Ok(())
    }
}

/// Returns the text of `value`, whose writer calls `uses` for each part.
pub fn written(value: &impl Debug, uses: impl FnMut()) -> String {
    let mut writer = Writer { text: String::new(), uses };
    write!(writer, "{value:?}").expect("the writer returns no error");
    writer.text
}
