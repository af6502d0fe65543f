//! Serves a chat over WebSocket, with tungstenite as it is. Each member has two goroutines, and no member waits for a slow one.
//!
//! cargo run --release --bin ws_chat
//!
//! listening on 127.0.0.1:7480, SIGINT or SIGTERM ends it
//! carol: too slow
//! served 3 connections, 0 cut off; 214 messages, 1 members too slow
//!
//! python3 -m websockets ws://127.0.0.1:7480/chat/alice
//!
//! tungstenite keeps both directions in one value, and its `read` answers pings and closes by itself. Here tungstenite has only
//! the reading side: the frames that it writes go whole to the end of the member's queue, and only the writer writes to the
//! stream.

mod member;

use gmp::chan::{Receiver, Sender};
use gmp::context::Context;
use gmp::net::TcpStream;
use gmp_interop::{Args, serve};
use member::{Member, Reason, Room, encoded};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tungstenite::error::{CapacityError, Error};
use tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tungstenite::http::StatusCode;
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Bytes, Message, WebSocket, accept_hdr_with_config};

const HELP: &str = "\
A chat by WebSocket: a member connects to /chat/NAME, and what it says is sent to all. SIGINT or SIGTERM ends it.

  --listen ADDR      where to listen; default 127.0.0.1:7480, port 0 takes a free one
  --handshake MS     how long a handshake may take; default 5,000
  --idle MS          how long a member may be silent, or leave what it is sent; default 600,000
  --waiting COUNT    how many messages may wait for a member, who has to go at one more; default 256
  --grace MS         how long a member that was too slow has to take what waits for it; default 1,000
  --help             this
";
const LONGEST_MESSAGE: usize = 64 << 10;
const LONGEST_NAME: usize = 32;
/// How long a member has to take the reason why the server closes its connection.
const GOODBYE: Duration = Duration::from_millis(400);

/// The stream that tungstenite reads from, and the queue that it writes its answers to.
struct Incoming {
    stream: Arc<TcpStream>,
    /// `None` during the handshake, whose answer goes out at once.
    answers: Option<Sender<Bytes>>,
}

impl Read for Incoming {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&mut &*self.stream).read(buf)
    }
}

impl Write for Incoming {
    /// Takes the whole buffer, which holds whole frames. Waits while the queue is full, so a member that pings faster than it
    /// reads stops itself.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match &self.answers {
            None => (&mut &*self.stream).write(buf),
            Some(answers) => {
                let sent = answers.send(Bytes::copy_from_slice(buf));
                sent.map(|()| buf.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Chat {
    room: Room,
    handshake: Duration,
    idle: Duration,
}

impl Chat {
    fn serve_one(&self, stream: &Arc<TcpStream>, context: &Context) -> Result<(), String> {
        stream.set_deadline(Some(Instant::now() + self.handshake)).map_err(|broken| broken.to_string())?;
        let (mut socket, name) = greet(stream)?;
        stream.set_deadline(None).map_err(|broken| broken.to_string())?;
        // The writer has the limit too: the reader waits for the writer while the queue is full, and would not see the silence.
        for limited in [stream.set_read_timeout(Some(self.idle)), stream.set_write_timeout(Some(self.idle))] {
            limited.map_err(|broken| broken.to_string())?;
        }

        let (member, to_send) = Member::new(name, stream, self.room.waiting);
        socket.get_mut().answers = Some(member.queue().clone());
        gmp::scope(|scope| {
            scope.go(|| send(stream, &member, to_send));
            let number = self.room.enter(&member);
            let reason = self.listen(&mut socket, &member, context);
            let why = reason.as_ref().map_or("gone", |(_, why)| why).to_owned();
            self.room.leave(number, &why);
            // The writer, which can wait for the member, has as long as the member has to take the rest.
            let until = if member.queue().is_closed() { self.room.grace } else { GOODBYE };
            member.leave(reason);
            let _it_is_closed_already = stream.set_deadline(Some(Instant::now() + until));
        });
        // A close that leaves bytes unread would be a reset, which takes the reason from the member.
        let mut rest = [0; 1 << 10];
        while matches!((&mut &**stream).read(&mut rest), Ok(1..)) {}
        Ok(())
    }

    /// Sends to all members what `member` says, until the end. Returns the reason that the server then has to tell the member.
    fn listen(&self, socket: &mut WebSocket<Incoming>, member: &Member, context: &Context) -> Option<Reason> {
        let broken = loop {
            match socket.read() {
                Ok(Message::Text(_)) if member.queue().is_closed() => return None,
                Ok(Message::Text(text)) => self.room.say(&format!("{}: {text}", member.name())),
                Ok(Message::Binary(_)) => return Some((CloseCode::Unsupported, "text only".into())),
                // tungstenite has answered.
                Ok(_) => {}
                Err(broken) => break broken,
            }
        };
        match broken {
            _ if context.err().is_some() => Some((CloseCode::Away, "the server stops".into())),
            // The member has closed the connection and was answered, or has gone without a close.
            Error::ConnectionClosed
            | Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => None,
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                Some((CloseCode::Size, format!("more than {LONGEST_MESSAGE} bytes")))
            }
            Error::Protocol(wrong) => Some((CloseCode::Protocol, wrong.to_string())),
            Error::Utf8(_) => Some((CloseCode::Invalid, "no UTF-8".into())),
            Error::Io(broken) if broken.kind() == io::ErrorKind::TimedOut => {
                Some((CloseCode::Policy, "silent for too long".into()))
            }
            _ => None,
        }
    }
}

/// Does the handshake, which tells the member's name.
fn greet(stream: &Arc<TcpStream>) -> Result<(WebSocket<Incoming>, String), String> {
    let mut name = None;
    // The large form of an error is the callback's type.
    #[expect(clippy::result_large_err, reason = "tungstenite has it so")]
    let look = |request: &Request, response: Response| -> Result<Response, ErrorResponse> {
        let asked = request.uri().path().strip_prefix("/chat/").unwrap_or_default();
        if asked.is_empty() || asked.len() > LONGEST_NAME || asked.contains('/') {
            let mut refused = ErrorResponse::new(Some("/chat/NAME, of 32 bytes at most\n".into()));
            *refused.status_mut() = StatusCode::NOT_FOUND;
            return Err(refused);
        }
        name = Some(asked.to_owned());
        Ok(response)
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(4 << 10)
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE));
    let incoming = Incoming { stream: Arc::clone(stream), answers: None };
    let socket =
        accept_hdr_with_config(incoming, look, Some(config)).map_err(|refused| refused.to_string())?;
    Ok((socket, name.expect("a handshake that succeeds has a name")))
}

/// Sends the queued frames until the queue is closed and empty, and then the reason if there is one.
fn send(stream: &TcpStream, member: &Member, to_send: Receiver<Bytes>) {
    let sent = to_send.iter().try_for_each(|frames| (&mut &*stream).write_all(&frames));
    if sent.is_err() {
        // From now on no goroutine takes frames from the queue, and the reader can be waiting to queue an answer.
        member.leave(None);
        drop(to_send);
        let _it_is_gone_already = stream.shutdown(Shutdown::Both);
        return;
    }
    if let Some((code, reason)) = member.reason() {
        let close = encoded(Frame::close(Some(CloseFrame { code, reason: reason.into() })));
        let _it_is_gone_already = (&mut &*stream).write_all(&close);
    }
    let _it_is_gone_already = stream.shutdown(Shutdown::Write);
}

fn run() -> io::Result<()> {
    let mut args = Args::new(HELP);
    let listen: String = args.value("--listen").unwrap_or("127.0.0.1:7480".into());
    let handshake = Duration::from_millis(args.value("--handshake").unwrap_or(5_000));
    let idle = Duration::from_millis(args.value("--idle").unwrap_or(600_000));
    let waiting = args.value("--waiting").unwrap_or(256);
    let grace = Duration::from_millis(args.value("--grace").unwrap_or(1_000));
    args.finish();
    let chat = Arc::new(Chat { room: Room::new(waiting, grace), handshake, idle });
    let served = serve(&listen, {
        let chat = Arc::clone(&chat);
        move |stream, context| {
            if let Err(refused) = chat.serve_one(stream, context) {
                eprintln!("refused: {refused}");
            }
        }
    })?;
    let (said, slow) = (chat.room.said.load(Relaxed), chat.room.slow.load(Relaxed));
    println!("served {served}; {said} messages, {slow} members too slow");
    Ok(())
}

fn main() -> ExitCode {
    gmp_interop::main("ws_chat", run)
}
