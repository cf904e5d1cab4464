//! `siga join`: a container, or a network that is there already, on a LAN, or at an adapter.

use std::path::{Path, PathBuf};

use os::signals::HeldSignals;
use port::serve::Left;
use port::setup::Place;
use port::watch::Watch;

use crate::member::{Done, Joined, Member};
use crate::outcome::Outcome;
use crate::output::{Output, print_json, say};
use crate::peer::attach_name;

/// Put an existing network on a LAN, as a container's, or at an adapter
///
/// Makes an interface in the network namespace, and moves its frames until Ctrl-C, or until the process or the file is
/// gone that the namespace was named by. The interface is removed when this command ends. The hosts file of a container stays as it is: the
/// names of the members are not in it.
///
/// Needs root, or the rights of the user namespace that the network belongs to, and /dev/net/tun. Name the network by --pid
/// or by --netns.
///
/// For example: ip netns add blue && siga join --netns /run/netns/blue
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The LAN
    #[arg(default_value = "hs0")]
    lan: String,
    /// The adapter, instead of a LAN; --address says who the network is there
    #[arg(long, value_name = "ADAPTER", value_parser = attach_name, conflicts_with = "lan")]
    osa: Option<String>,
    /// The network of this process, for example the first one of a container; or name a namespace with --netns
    #[arg(long, value_name = "NUMBER", required_unless_present = "netns")]
    pid: Option<u32>,
    /// The network namespace at this path, for example /run/netns/NAME
    #[arg(long, value_name = "PATH", conflicts_with = "pid")]
    netns: Option<PathBuf>,
    #[command(flatten)]
    member: Member,
    #[command(flatten)]
    output: Output,
}

/// Serves until a signal ends it, or the namespace is gone.
pub fn run(arguments: &Arguments) -> Result<(), Outcome> {
    let Arguments { lan, osa, pid, netns, member, output } = arguments;
    let path = match (pid, netns) {
        (Some(number), _) => PathBuf::from(format!("/proc/{number}/ns/net")),
        (None, Some(path)) => path.clone(),
        (None, None) => unreachable!("one of them is required"),
    };
    let held = HeldSignals::hold_to_pass_on().map_err(Outcome::no)?;
    let watch = Watch::new(&path).map_err(|error| {
        let what = path.display();
        Outcome::No(format!("{what}: {error}: is the process or the namespace still there?"))
    })?;
    let purpose = path.file_name().filter(|_| pid.is_none()).unwrap_or("PORT".as_ref());
    let purpose = Path::new(purpose).as_os_str();
    let joined = match osa {
        Some(adapter) => member.open(adapter, purpose)?,
        None => {
            let (lan, options) = member.join(lan, purpose)?;
            Joined::Lan(Box::new(lan), options)
        }
    };
    let place = Place::Existing(path);
    let (made, waiting, up) = joined.start(place, &held).map_err(Outcome::no)?;
    member.pin()?;
    let (mut server, _) = joined.serve(made, &held)?;
    // It has done its part; the port waits for the namespace, not for this process.
    waiting.go().wait().map_err(Outcome::no)?;
    if output.json {
        // A pipe that nobody reads is no reason to end.
        let _ = print_json(&up);
    } else {
        say(&up);
    }
    let left = server.serve_namespace(&watch).map_err(Outcome::no)?;
    if output.json {
        let _ = print_json(&Done::new(server.agent(), None));
    } else if left == Left::Gone {
        say(format_args!("siga: the namespace, or its interface, is gone"));
    }
    Ok(())
}
