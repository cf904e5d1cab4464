//! The states of a conversation, and the verbs that they allow.

use std::fmt;

use fabric::listed;

listed! {
    /// What one side of a conversation may do, as far as its program has been told what has happened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum State {
        /// There is no conversation, or not any more.
        Reset => "RESET",
        /// It was asked for and not accepted yet.
        Connect => "CONNECT",
        /// This side sends.
        Send => "SEND",
        /// This side receives.
        Receive => "RECEIVE",
        /// The partner waits for this side to confirm, and goes on sending then.
        Confirm => "CONFIRM",
        /// The partner waits for this side to confirm, and then to send.
        ConfirmSend => "CONFIRM-SEND",
        /// The partner waits for this side to confirm, and the conversation is over then.
        ConfirmSever => "CONFIRM-SEVER",
        /// This side waits for the partner to confirm.
        Confirming => "CONFIRMING",
        /// The partner has ended the conversation, or is gone.
        Sever => "SEVER",
    }
}

impl State {
    /// Whether a verb is allowed.
    #[inline]
    pub fn allows(self, verb: Verb) -> bool {
        match verb {
            Verb::Allocate => self == State::Reset,
            Verb::Accept => self == State::Connect,
            Verb::Send | Verb::Confirm => self == State::Send,
            Verb::Receive => self == State::Receive,
            Verb::Confirmed => self.is_asked_to_confirm(),
            Verb::Error => {
                matches!(self, State::Send | State::Receive) || self.is_asked_to_confirm()
            }
            Verb::Request => self == State::Receive || self.is_asked_to_confirm(),
            Verb::Sever => self != State::Reset,
        }
    }

    fn is_asked_to_confirm(self) -> bool {
        matches!(self, State::Confirm | State::ConfirmSend | State::ConfirmSever)
    }
}

/// As APPC/VM names it.
impl fmt::Display for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

listed! {
    /// What a program can ask for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Verb {
        /// (CONNECT) Asks for a conversation.
        Allocate => "CONNECT",
        /// (ACCEPT) Takes part in a conversation that was asked for.
        Accept => "ACCEPT",
        /// (SENDDATA) Sends a record, turns round, or ends the conversation.
        Send => "SENDDATA",
        /// (RECEIVE) Receives a record, or a part of it.
        Receive => "RECEIVE",
        /// (SENDCNF) Asks the partner to confirm.
        Confirm => "SENDCNF",
        /// (SENDCNFD) Confirms.
        Confirmed => "SENDCNFD",
        /// (SENDERR) Tells the partner of an error, and takes the turn.
        Error => "SENDERR",
        /// (SENDREQ) Asks the partner for the turn.
        Request => "SENDREQ",
        /// (SEVER) Ends the conversation at once.
        Sever => "SEVER",
    }
}

/// As APPC/VM names it.
impl fmt::Display for Verb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The state of a conversation does not allow a verb. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{verb} is not allowed in {state} state")]
pub struct StateError {
    /// Which verb.
    pub verb: Verb,
    /// In which state.
    pub state: State,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_allow_what_the_table_says() {
        let table = [
            ("RESET", "CONNECT"),
            ("CONNECT", "ACCEPT SEVER"),
            ("SEND", "SENDDATA SENDCNF SENDERR SEVER"),
            ("RECEIVE", "RECEIVE SENDERR SENDREQ SEVER"),
            ("CONFIRM", "SENDCNFD SENDERR SENDREQ SEVER"),
            ("CONFIRM-SEND", "SENDCNFD SENDERR SENDREQ SEVER"),
            ("CONFIRM-SEVER", "SENDCNFD SENDERR SENDREQ SEVER"),
            ("CONFIRMING", "SEVER"),
            ("SEVER", "SEVER"),
        ];
        for (state, (name, verbs)) in State::ALL.into_iter().zip(table) {
            let allowed = Verb::ALL.into_iter().filter(|verb| state.allows(*verb));
            let allowed: Vec<String> = allowed.map(|verb| verb.to_string()).collect();
            assert_eq!((state.to_string().as_str(), allowed.join(" ").as_str()), (name, verbs));
        }
    }

    #[test]
    fn error_names_verb_and_state() {
        let error = StateError { verb: Verb::Confirmed, state: State::Receive };
        assert_eq!(error.to_string(), "SENDCNFD is not allowed in RECEIVE state");
    }
}
