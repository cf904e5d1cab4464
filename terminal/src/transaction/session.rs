//! A session that runs the program of one screen, with times until when the client has to say something.

use thiserror::Error;

use super::{Next, form, on_key};
use crate::Violation;
use crate::server::{Event, Server};

/// How a session serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionOptions {
    /// Bytes of the data stream of an answer.
    pub answer_bytes: usize,
    /// How long a client may take until it is a terminal, in nanoseconds.
    pub negotiation_ns: u64,
    /// How long a terminal may press no key, in nanoseconds.
    pub silence_ns: u64,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            answer_bytes: 2000,
            negotiation_ns: 30_000_000_000,
            silence_ns: 600_000_000_000,
        }
    }
}

/// How a session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Ending {
    /// The user has left, with PF3 or CLEAR.
    #[error("the user has left")]
    Left,
    /// The client was no terminal in time.
    #[error("no terminal was negotiated in time")]
    NotNegotiated,
    /// No key was pressed for too long.
    #[error("no key was pressed for too long")]
    Silent,
    /// The client has broken a rule.
    #[error("{0}")]
    Violation(#[from] Violation),
}

/// A session of the program.
#[derive(Debug)]
pub struct Session {
    server: Server,
    options: SessionOptions,
    due_ns: u64,
    transactions: u64,
}

impl Session {
    /// A session that begins at the time `now`, in nanoseconds, with a terminal of this name.
    pub fn new(name: &str, options: &SessionOptions, now: u64) -> Session {
        Session {
            server: Server::new(name),
            options: options.clone(),
            due_ns: now.saturating_add(options.negotiation_ns),
            transactions: 0,
        }
    }

    /// Takes bytes of the client, and answers. Returns how many were taken: fewer than all while output waits.
    ///
    /// # Errors
    /// [`Ending`]: the session is over. Nothing more is to be sent.
    pub fn receive(&mut self, bytes: &[u8], now: u64) -> Result<usize, Ending> {
        let mut taken = 0;
        loop {
            let (more, event) = self.server.receive(&bytes[taken..])?;
            taken += more;
            let write = match event {
                None => return Ok(taken),
                Some(Event::Started) => form(),
                Some(Event::Pressed(aid)) => {
                    match on_key(aid, self.server.display(), self.options.answer_bytes) {
                        Next::End => return Err(Ending::Left),
                        Next::Show(write, is_answer) => {
                            self.transactions += u64::from(is_answer);
                            write
                        }
                    }
                }
            };
            self.server.show(&write);
            // A key counts and nothing else: bytes that come now and then keep no session.
            self.due_ns = now.saturating_add(self.options.silence_ns);
        }
    }

    /// Bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        self.server.output()
    }

    /// So many bytes of the output have been sent.
    ///
    /// # Panics
    /// If there are not so many: a broken promise of the caller.
    pub fn sent(&mut self, bytes: usize) {
        self.server.sent(bytes);
    }

    /// When the client has to have said something.
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Ends the session if the client has said nothing for too long.
    ///
    /// # Errors
    /// [`Ending`]: it is over.
    pub fn poll(&self, now: u64) -> Result<(), Ending> {
        match (now < self.due_ns, self.server.is_started()) {
            (true, _) => Ok(()),
            (false, true) => Err(Ending::Silent),
            (false, false) => Err(Ending::NotNegotiated),
        }
    }

    /// Questions that were answered.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    /// Its end of the negotiation.
    pub fn server(&self) -> &Server {
        &self.server
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, ClientOptions};
    use crate::stream::Aid;
    use crate::transaction::{answer, ask};

    /// Carries bytes until nothing more goes.
    fn carry(session: &mut Session, client: &mut Client, now: u64) -> Result<(), Ending> {
        while !session.output().is_empty() || !client.output().is_empty() {
            let mut bytes = session.output();
            while !bytes.is_empty() {
                bytes = &bytes[client.receive(bytes).unwrap().0..];
            }
            session.sent(session.output().len());
            let taken = session.receive(client.output(), now)?;
            client.sent(taken);
        }
        Ok(())
    }

    fn pair(options: &ClientOptions) -> (Session, Client) {
        let session = Session::new("LU1", &SessionOptions::default(), 0);
        (session, Client::new(options))
    }

    #[test]
    fn questions_are_answered_until_the_user_leaves() {
        for is_extended in [true, false] {
            let options = ClientOptions { is_extended, ..ClientOptions::default() };
            let (mut session, mut client) = pair(&options);
            carry(&mut session, &mut client, 1).unwrap();
            for account in 0..200 {
                let remark = format!("QUESTION {account}");
                assert_eq!(ask(&mut client, account, &remark), Ok(true));
                assert_eq!(ask(&mut client, account, &remark), Ok(false), "locked");
                carry(&mut session, &mut client, 1).unwrap();
                assert_eq!(client.record(), answer(account, &remark, 2000).bytes());
            }
            assert_eq!(session.transactions(), 200);
            assert!(client.press(Aid::Pf(3)));
            assert_eq!(carry(&mut session, &mut client, 1), Err(Ending::Left));
        }
    }

    #[test]
    fn question_has_the_bytes_that_are_counted() {
        let (mut session, mut client) = pair(&ClientOptions::default());
        carry(&mut session, &mut client, 1).unwrap();
        ask(&mut client, 1, "ABC").unwrap();
        assert_eq!(client.output().len(), crate::transaction::QUESTION_BYTES + 3);
        let taken = session.receive(client.output(), 1).unwrap();
        client.sent(taken);
        assert_eq!(session.output().len(), 2000 + crate::transaction::AROUND_BYTES);
    }

    #[test]
    fn what_was_typed_before_a_key_that_sends_no_fields_is_sent_with_the_next() {
        for is_extended in [true, false] {
            let options = ClientOptions { is_extended, ..ClientOptions::default() };
            let (mut session, mut client) = pair(&options);
            carry(&mut session, &mut client, 1).unwrap();
            client.type_in(0, "4711").unwrap();
            assert!(client.press(Aid::Pa(1)));
            carry(&mut session, &mut client, 1).unwrap();
            assert_eq!(client.record()[..2], [0xf1, 0xc2], "the keyboard is free, and no more");
            assert_eq!(client.display().row(4), " THIS KEY DOES NOTHING HERE");
            assert!(client.press(Aid::Enter));
            carry(&mut session, &mut client, 1).unwrap();
            assert_eq!(client.record(), answer(4711, "", 2000).bytes());
        }
    }

    #[test]
    fn client_that_says_nothing_is_let_go() {
        let options = SessionOptions { negotiation_ns: 10, silence_ns: 100, ..Default::default() };
        let mut session = Session::new("LU1", &options, 5);
        assert_eq!((session.due_ns(), session.poll(14)), (15, Ok(())));
        assert_eq!(session.poll(15), Err(Ending::NotNegotiated));
        // Bytes alone are no terminal.
        session.receive(&[255, 241], 14).unwrap();
        assert_eq!(session.poll(15), Err(Ending::NotNegotiated));
        let mut client = Client::new(&ClientOptions::default());
        carry(&mut session, &mut client, 14).unwrap();
        assert_eq!((session.due_ns(), session.poll(113)), (114, Ok(())));
        assert_eq!(session.poll(114), Err(Ending::Silent));
        ask(&mut client, 1, "").unwrap();
        carry(&mut session, &mut client, 113).unwrap();
        assert_eq!(session.poll(114), Ok(()));
    }
}
