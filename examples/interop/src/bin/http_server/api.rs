//! The JSON API.

use crate::body::Body;
use crate::request::Request;
use crate::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sum {
    numbers: Vec<i64>,
}

#[derive(Serialize)]
struct Total {
    sum: i64,
    count: usize,
}

#[derive(Serialize)]
struct Time {
    unix_ms: u128,
    http: String,
}

/// Answers the call of this name.
pub fn answer(name: &str, request: &Request, body: &mut Body, debug: bool) -> Result<Response, Response> {
    match (name, request.method) {
        ("time", "GET" | "HEAD") => {
            let now = SystemTime::now();
            let unix_ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
            json(&Time { unix_ms, http: httpdate::fmt_http_date(now) })
        }
        ("echo", "POST") => json(&parsed::<Value>(body)?),
        ("sum", "POST") => {
            let Sum { numbers } = parsed(body)?;
            let sum = numbers.iter().try_fold(0_i64, |sum, &number| sum.checked_add(number));
            let sum = sum.ok_or_else(|| complaint(422, "the sum does not fit"))?;
            json(&Total { sum, count: numbers.len() })
        }
        ("panic", "GET") if debug => panic!("as was asked for"),
        ("time", _) => Err(complaint(405, "GET it").with("Allow", "GET, HEAD")),
        ("echo" | "sum", _) => Err(complaint(405, "POST it").with("Allow", "POST")),
        _ => Err(complaint(404, "there is no such call")),
    }
}

fn parsed<T: for<'de> Deserialize<'de>>(body: &mut Body) -> Result<T, Response> {
    let text = body.whole()?;
    serde_json::from_slice(&text).map_err(|wrong| complaint(400, &wrong.to_string()))
}

fn json(value: &impl Serialize) -> Result<Response, Response> {
    let text = serde_json::to_vec(value).map_err(|wrong| complaint(500, &wrong.to_string()))?;
    Ok(Response::bytes(200, "application/json", text))
}

fn complaint(status: u16, text: &str) -> Response {
    let text = serde_json::json!({ "error": text }).to_string();
    Response::bytes(status, "application/json", text.into_bytes())
}
