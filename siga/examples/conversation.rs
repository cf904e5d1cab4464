//! A conversation with confirmation: a customer orders, and a clerk confirms or finds an error.
//!
//! With `siga up` running, `cargo run --example conversation -- clerk` and, in another terminal,
//! `cargo run --example conversation -- customer`. Without an argument both run in this process.

use std::thread;

use siga::appc::{Conversation, Level, Options, State, Then, VerbError};
use siga::connect::Scope;
use siga::host::{Embedded, System};
use siga::{Guest, Wait};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const OPTIONS: Options = Options { wait: Wait::Block, level: Level::Confirm, ..Options::DEFAULT };

fn serve(guest: &Guest) -> Result<()> {
    let mut conversation = Conversation::accept_for(guest, "ORDERS", &OPTIONS)?;
    let mut order = Vec::new();
    loop {
        let received = conversation.receive_whole(&mut order)?;
        if received.status == State::ConfirmSever {
            conversation.confirmed()?;
            return Ok(());
        }
        let order = String::from_utf8_lossy(&order);
        if order.contains("unicorn") {
            // It is our turn then: what else was sent is purged.
            conversation.error()?;
            conversation.send(b"there are no unicorns", Then::Receive)?;
        } else {
            conversation.confirmed()?;
            println!("the clerk has {order}");
        }
    }
}

fn order(guest: &Guest) -> Result<()> {
    let mut conversation = Conversation::allocate(guest, "ORDERS", &OPTIONS)?;
    for order in ["ten reams of paper", "a unicorn", "a box of pencils"] {
        match conversation.send(order.as_bytes(), Then::Confirm) {
            Ok(()) => println!("{order}: confirmed"),
            Err(VerbError::Trouble(_)) => {
                let mut why = Vec::new();
                conversation.receive_whole(&mut why)?;
                println!("{order}: {}", String::from_utf8_lossy(&why));
            }
            Err(error) => return Err(error.into()),
        }
    }
    conversation.send_without_data(Then::ConfirmSever)?;
    Ok(())
}

/// The customer need not know who takes orders.
fn clerk(guest: Guest) -> Result<Guest> {
    guest.identify("ORDERS", Scope::Local)?;
    Ok(guest)
}

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("clerk") => serve(&clerk(Guest::attach(siga::default_socket()?, "CLERK")?)?),
        Some("customer") => order(&Guest::attach(siga::default_socket()?, "CUSTOMER")?),
        _ => {
            let host = Embedded::start(System::open())?;
            let clerk = clerk(Guest::attach_embedded(&host, "CLERK")?)?;
            let serving = thread::spawn(move || serve(&clerk));
            order(&Guest::attach_embedded(&host, "CUSTOMER")?)?;
            serving.join().expect("the clerk does not panic")
        }
    }
}
