//! A certificate for 127.0.0.1 and `localhost`, made by openssl, that is its own root.

use crate::{Program, Scratch, run};
use std::path::PathBuf;

const CONFIG: &str = "\
[req]
distinguished_name = name
x509_extensions = extensions
prompt = no
[name]
CN = localhost
[extensions]
basicConstraints = critical, CA:FALSE
extendedKeyUsage = serverAuth
subjectAltName = DNS:localhost, IP:127.0.0.1
";

/// Makes the certificate and its private key, and returns the paths of the two PEM files.
#[track_caller]
pub fn certificate(openssl: &Program, scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (cert, key) = (scratch.join("cert.pem"), scratch.join("key.pem"));
    let mut command = openssl.command();
    command.args([
        "req",
        "-x509",
        "-days",
        "2",
        "-nodes",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
    ]);
    command.arg("-config").arg(scratch.file("openssl.cnf", CONFIG));
    run(command.arg("-keyout").arg(&key).arg("-out").arg(&cert)).good();
    (cert, key)
}
