//! Bytes of a socket that have come over a path and were not taken yet.
//!
//! They stay in their sender's pages, where their only copy is made from, as long as few do. Otherwise they are copied into
//! memory of our own: so a socket that is not read keeps no page from the others of its path.

use std::collections::VecDeque;

use fabric::path::{InPage, Receiver};

/// Bytes that stay in pages, at most: half of what may be on its way.
const PAGE_BYTES_MAX: usize = super::WINDOW_BYTES / 2;

/// Messages after which a page is copied and given back. A queue has 248 buffers for data, which are used in order: one that is kept
/// would stop all others when its turn comes again.
const AGE_MAX: u64 = 96;

/// What the sockets of one path keep of its pages.
#[derive(Debug, Default)]
pub(super) struct Kept {
    bytes: usize,
    /// Messages that have come.
    messages: u64,
    /// The last of them that came over the path before: its pages, and those of earlier ones, count no more.
    last_before: u64,
    /// The pages that are kept, and some that were, oldest first: the message, and the socket.
    pages: VecDeque<(u64, u32)>,
}

impl Kept {
    /// There is another path. What is kept of the last one takes nothing off this one.
    pub(super) fn begin_path(&mut self) {
        self.bytes = 0;
        self.last_before = self.messages;
        self.pages.clear();
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The page of this message is kept no more.
    fn release(&mut self, message: u64, bytes: usize) {
        if message > self.last_before {
            self.bytes -= bytes;
        }
    }

    /// A message has come.
    pub(super) fn count(&mut self) {
        self.messages += 1;
    }

    /// Keeps a page with so many bytes for a socket, if there may be one more. Returns its message's number.
    fn keep(&mut self, socket: u32, bytes: usize) -> Option<u64> {
        if self.bytes + bytes > PAGE_BYTES_MAX {
            return None;
        }
        self.bytes += bytes;
        self.pages.push_back((self.messages, socket));
        Some(self.messages)
    }

    /// A page that is too old, or was: its message, and the socket, which may have given it back since.
    pub(super) fn take_overdue(&mut self) -> Option<(u64, u32)> {
        let (message, _) = self.pages.front()?;
        match self.messages - message >= AGE_MAX {
            true => self.pages.pop_front(),
            false => None,
        }
    }
}

/// Bytes of one socket, in their order.
#[derive(Debug, Default)]
pub(super) struct Parked {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that were taken.
    taken: usize,
    bytes: usize,
}

#[derive(Debug)]
enum Piece {
    /// In the page of this message.
    InPage(u64, InPage),
    Copied(Vec<u8>),
}

/// Bytes up to which copies are put together: each piece takes some memory beside its bytes, however few these are.
const COPY_BYTES: usize = 64 << 10;

impl Piece {
    fn bytes(&self) -> usize {
        match self {
            Piece::InPage(_, page) => page.body_bytes(),
            Piece::Copied(bytes) => bytes.len(),
        }
    }
}

impl Parked {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Parks bytes of a socket that lie in a page.
    pub(super) fn push_page(
        &mut self,
        socket: u32,
        page: InPage,
        kept: &mut Kept,
        receiver: &mut Receiver,
    ) {
        let bytes = page.body_bytes();
        if bytes == 0 {
            return give_back(receiver, page);
        }
        self.bytes += bytes;
        match kept.keep(socket, bytes) {
            Some(message) => self.pieces.push_back(Piece::InPage(message, page)),
            None => append(room(&mut self.pieces, bytes), page, receiver),
        }
    }

    /// Copies what lies in the page of this message, if it still does, and gives the page back.
    pub(super) fn copy_out(&mut self, message: u64, kept: &mut Kept, receiver: &mut Receiver) {
        // The oldest page is asked for: before it are copies alone, which are few.
        let is_it = |piece: &Piece| matches!(piece, Piece::InPage(of, _) if *of == message);
        let Some(at) = self.pieces.iter().position(is_it) else { return };
        let empty = Piece::Copied(Vec::new());
        let Piece::InPage(_, page) = std::mem::replace(&mut self.pieces[at], empty) else { return };
        kept.release(message, page.body_bytes());
        let before = at.checked_sub(1).map(|before| &mut self.pieces[before]);
        match before {
            Some(Piece::Copied(before)) if before.len() + page.body_bytes() <= COPY_BYTES => {
                append(before, page, receiver);
                self.pieces.remove(at);
            }
            _ => {
                if let Piece::Copied(own) = &mut self.pieces[at] {
                    append(own, page, receiver);
                }
            }
        }
    }

    /// Parks bytes that are valid for now only.
    pub(super) fn push_copy(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes += bytes.len();
            room(&mut self.pieces, bytes.len()).extend_from_slice(bytes);
        }
    }

    /// Takes bytes in order: `take` is given the length of what lies in one piece, and a function that copies its first bytes; it returns
    /// how many it has taken, and is asked again for the rest, until it takes none. Returns how many were taken in all. Pages go back
    /// to the receiver, unless its path has ended.
    pub(super) fn take(
        &mut self,
        kept: &mut Kept,
        mut receiver: Option<&mut Receiver>,
        mut take: impl FnMut(usize, &dyn Fn(&mut [u8])) -> usize,
    ) -> usize {
        let mut all = 0;
        while let Some(piece) = self.pieces.front() {
            let from = self.taken;
            let left = piece.bytes() - from;
            let count = match piece {
                Piece::InPage(_, page) => take(left, &|target: &mut [u8]| {
                    page.read(from, target).expect("no more is asked for than is left");
                }),
                Piece::Copied(bytes) => take(left, &|target: &mut [u8]| {
                    target.copy_from_slice(&bytes[from..from + target.len()]);
                }),
            };
            let count = count.min(left);
            all += count;
            self.bytes -= count;
            self.taken += count;
            if count == 0 {
                break;
            }
            if count < left {
                continue;
            }
            self.taken = 0;
            match self.pieces.pop_front() {
                Some(Piece::InPage(message, page)) => {
                    kept.release(message, page.body_bytes());
                    if let Some(receiver) = receiver.as_deref_mut() {
                        give_back(receiver, page);
                    }
                }
                Some(Piece::Copied(_)) | None => {}
            }
        }
        all
    }

    /// Copies bytes into `target`, and returns how many.
    pub(super) fn read(
        &mut self,
        target: &mut [u8],
        kept: &mut Kept,
        receiver: Option<&mut Receiver>,
    ) -> usize {
        let mut count = 0;
        self.take(kept, receiver, |left, copy| {
            let now = left.min(target.len() - count);
            copy(&mut target[count..count + now]);
            count += now;
            now
        })
    }

    /// Copies the next bytes, which stay. Returns how many.
    pub(super) fn peek(&self, target: &mut [u8]) -> usize {
        let (mut count, mut from) = (0, self.taken);
        for piece in &self.pieces {
            let now = (piece.bytes() - from).min(target.len() - count);
            let target = &mut target[count..count + now];
            match piece {
                Piece::InPage(_, page) => page.read(from, target).expect("it has so many"),
                Piece::Copied(bytes) => target.copy_from_slice(&bytes[from..from + now]),
            }
            (count, from) = (count + now, 0);
        }
        count
    }

    /// Throws all of it away. Returns how many bytes there were.
    pub(super) fn clear(&mut self, kept: &mut Kept, receiver: Option<&mut Receiver>) -> usize {
        self.take(kept, receiver, |left, _| left)
    }
}

/// Where so many bytes are copied to: behind the last copy, if there is room.
fn room(pieces: &mut VecDeque<Piece>, bytes: usize) -> &mut Vec<u8> {
    let has_room =
        matches!(pieces.back(), Some(Piece::Copied(last)) if last.len() + bytes <= COPY_BYTES);
    if !has_room {
        pieces.push_back(Piece::Copied(Vec::new()));
    }
    match pieces.back_mut() {
        Some(Piece::Copied(last)) => last,
        _ => unreachable!("it was put there"),
    }
}

/// Copies what lies in a page, which is given back.
fn append(copy: &mut Vec<u8>, page: InPage, receiver: &mut Receiver) {
    let at = copy.len();
    copy.resize(at + page.body_bytes(), 0);
    page.read(0, &mut copy[at..]).expect("the length is the page's own");
    give_back(receiver, page);
}

fn give_back(receiver: &mut Receiver, page: InPage) {
    // It is of this receiver, unless the path was another before: then the page went with that path.
    let _ = receiver.give_back(page);
}
