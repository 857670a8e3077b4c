//! One WebSocket, as a client: connecting, frames in, text out. Knows no venue.
//!
//! The protocol is tungstenite's; this puts it on tokio's sockets. Reading may be given up at any point and resumed: what
//! has come of a frame stays in the buffer. A text frame that is not UTF-8 is told and costs only itself.
//!
//! What almost every frame is, a text that stands in the buffer whole, is cut out of it by `pipe`, with all those that stand
//! behind it. Everything else (pings, pieces, goodbyes, what is too large or against the rules) is handed to tungstenite,
//! one frame at a time.
//!
//! Pongs are sent by tungstenite, with the ping's own bytes, while we read. Nothing is compressed: no venue here insists.
//!
//! * `dial`: a socket is opened; `pipe`: what was read, cut into frames

mod dial;
mod pipe;
#[cfg(test)]
mod tests;

use std::io;
use std::task::{Context, Poll};

use tungstenite::{Error, Message, Utf8Bytes, WebSocket};

pub(crate) use self::dial::{ConnectError, Dialer};
pub(crate) use self::pipe::Run;
use self::pipe::{Cut, Pipe};

/// An open WebSocket.
pub(crate) struct Socket {
    ws: WebSocket<Pipe>,
    must_flush: bool,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Texts that came one behind the other.
    Run(Run),
    /// A text that came in pieces.
    Text(Utf8Bytes),
    /// So many bytes that no venue sends.
    Binary(usize),
    /// A text frame that is not UTF-8; its bytes are gone.
    NotUtf8,
    /// A sign of life.
    Ping,
    /// An answer to ours.
    Pong,
    /// The venue says goodbye.
    Close(String),
}

impl Socket {
    /// The next frame, as soon as there is one. An error ends the socket.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Error>> {
        self.ws.get_mut().waker.clone_from(cx.waker());
        if self.must_flush {
            self.flush()?;
        }
        match self.try_frame() {
            Some(frame) => Poll::Ready(frame),
            None => Poll::Pending,
        }
    }

    /// The next frame, if it is already here. Whoever finds none is woken as by the last [`Socket::poll_frame`].
    pub(crate) fn try_frame(&mut self) -> Option<Result<Frame, Error>> {
        loop {
            match self.ws.get_mut().cut() {
                Cut::Texts(run) => return Some(Ok(Frame::Run(run))),
                Cut::Other => {}
                Cut::More => match self.ws.get_mut().read_ahead() {
                    Ok(()) => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                    Err(error) => return Some(Err(Error::Io(error))),
                },
            }
            return Some(match self.ws.read() {
                Ok(Message::Text(text)) => Ok(Frame::Text(text)),
                Ok(Message::Binary(bytes)) => Ok(Frame::Binary(bytes.len())),
                // The pong is in line.
                Ok(Message::Ping(_)) => self.flush().map(|()| Frame::Ping),
                Ok(Message::Pong(_)) => Ok(Frame::Pong),
                Ok(Message::Close(frame)) => {
                    self.ws.get_mut().is_over = true;
                    Ok(Frame::Close(match frame {
                        Some(frame) => format!("{} {}", u16::from(frame.code), frame.reason),
                        None => "without a reason".to_owned(),
                    }))
                }
                Ok(Message::Frame(_)) => continue,
                Err(Error::Utf8(_)) => {
                    // Tungstenite may or may not wait for more of it: it is asked about the next text, whole as that may be.
                    self.ws.get_mut().in_pieces = true;
                    Ok(Frame::NotUtf8)
                }
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.ws.get_ref().owes() {
                        return None;
                    }
                    // It has had all of a frame that is no message yet.
                    continue;
                }
                Err(error) => Err(error),
            });
        }
    }

    /// How often the network was read: frames with the same number came together.
    pub(crate) fn reads(&self) -> u64 {
        self.ws.get_ref().reads
    }

    /// Sends text, or puts it in line.
    pub(crate) fn send(&mut self, text: String) -> Result<(), Error> {
        match self.ws.write(Message::text(text)) {
            Ok(()) => self.flush(),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.must_flush = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Says goodbye, without waiting for an answer.
    pub(crate) fn close(&mut self) {
        // It is given up either way.
        let _ = self.ws.close(None);
        let _ = self.ws.flush();
    }

    fn flush(&mut self) -> Result<(), Error> {
        match self.ws.flush() {
            Ok(()) => {
                self.must_flush = false;
                Ok(())
            }
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                self.must_flush = true;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
