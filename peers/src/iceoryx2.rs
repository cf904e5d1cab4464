//! iceoryx2: samples in shared memory, one service for each direction, and one event for each if sides sleep.
//!
//! A message is built in the publisher's memory and read there.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::hint::spin_loop;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};

use iceoryx2::config::Config;
use iceoryx2::node::{Node, NodeBuilder};
use iceoryx2::port::backpressure_strategy::BackpressureStrategy;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::{FileName, Path, SemanticString};
use iceoryx2::service::ipc::Service;
use iceoryx2::service::service_name::ServiceName;
use iceoryx2::signal_handling_mode::SignalHandlingMode;
use lab::worker::{Control, Doing, End, Fault, Order};

/// What a queue may hold, of messages that are large: it stays in the caches of one processor.
const QUEUE_BYTES: usize = 1 << 20;

/// Messages that a queue holds.
const QUEUE_MESSAGES_MIN: usize = 2;
const QUEUE_MESSAGES_MAX: usize = 512;

/// One end of two services.
pub struct Iceoryx2End {
    publisher: Publisher<Service, [u8], ()>,
    subscriber: Subscriber<Service, [u8], ()>,
    /// None if the sides spin.
    events: Option<Events>,
    queue_messages: usize,
    _node: Node<Service>,
}

/// How sleepers are woken.
struct Events {
    notifier: Notifier<Service>,
    listener: Listener<Service>,
}

impl Iceoryx2End {
    pub fn open(order: &Order, control: &mut Control) -> Result<Iceoryx2End, Fault> {
        let node = NodeBuilder::new()
            .config(&config()?)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create::<Service>()
            .doing("make a node of iceoryx2")?;
        if order.is_source() {
            let name = format!("siga-peers-{}", std::process::id());
            let end = Iceoryx2End::of(node, [&name, "forth"], [&name, "back"], order)?;
            control.tell(&name)?;
            control.note()?;
            end.connect()?;
            Ok(end)
        } else {
            let name = control.note()?;
            let end = Iceoryx2End::of(node, [&name, "back"], [&name, "forth"], order)?;
            end.connect()?;
            control.tell("connected")?;
            Ok(end)
        }
    }

    /// All that this side has of the services `output` and `input`.
    fn of(
        node: Node<Service>,
        output: [&str; 2],
        input: [&str; 2],
        order: &Order,
    ) -> Result<Iceoryx2End, Fault> {
        let bytes = order.number("bytes") as usize;
        let queue_messages = (QUEUE_BYTES / bytes).clamp(QUEUE_MESSAGES_MIN, QUEUE_MESSAGES_MAX);
        let name = |name: [&str; 2]| ServiceName::new(&name.join("/")).doing("name a service");
        let service = |service: [&str; 2]| {
            let builder = node.service_builder(&name(service)?).publish_subscribe::<[u8]>();
            let builder = builder
                .max_publishers(1)
                .max_subscribers(1)
                .max_nodes(2)
                .history_size(0)
                .enable_safe_overflow(false)
                .subscriber_max_buffer_size(queue_messages);
            builder.open_or_create().doing("open a service of iceoryx2")
        };
        let publisher = service(output)?
            .publisher_builder()
            .initial_max_slice_len(bytes)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .doing("make a publisher")?;
        let subscriber =
            service(input)?.subscriber_builder().create().doing("make a subscriber")?;
        let event = |service: [&str; 2]| {
            let builder = node.service_builder(&name(service)?).event();
            let builder = builder.max_notifiers(1).max_listeners(1).max_nodes(2);
            builder.open_or_create().doing("open an event of iceoryx2")
        };
        let events = if order.word("wait") == "block" {
            let notifier = event(output)?.notifier_builder().create().doing("make a notifier")?;
            let listener = event(input)?.listener_builder().create().doing("make a listener")?;
            Some(Events { notifier, listener })
        } else {
            None
        };
        Ok(Iceoryx2End { publisher, subscriber, events, queue_messages, _node: node })
    }

    /// Connects to what the other side has made. Nothing has been sent yet.
    fn connect(&self) -> Result<(), Fault> {
        self.publisher.update_connections().doing("connect a publisher")?;
        self.subscriber.receive().map(|_| ()).doing("connect a subscriber")
    }

    #[inline(always)]
    fn publish(&mut self, bytes: usize, build: impl FnOnce(&mut [u8])) -> Result<(), Fault> {
        let sample = self.publisher.loan_slice_uninit(bytes).doing("loan a sample")?;
        // SAFETY: a sample lies in a shared mapping of a file, and a byte of a file always has a value: zero,
        // or that of an earlier message.
        let mut sample = unsafe { sample.assume_init() };
        build(sample.payload_mut());
        sample.send().doing("send a sample")?;
        match &self.events {
            Some(events) => events.notifier.notify().map(|_| ()).doing("notify"),
            None => Ok(()),
        }
    }
}

/// Where iceoryx2 keeps its files: apart from those of other programs. The next trial removes what a killed
/// one has left behind, as iceoryx2 does it for all nodes of the same place.
fn config() -> Result<Config, Fault> {
    let user = std::fs::metadata("/proc/self").doing("look at /proc/self")?.uid();
    let directory = std::env::temp_dir().join(format!("siga-peers-{user}"));
    let made = DirBuilder::new().mode(0o700).recursive(true).create(&directory);
    made.doing("make a directory for iceoryx2")?;
    // Another user may have made it first, and would own the place of our files.
    let found = std::fs::symlink_metadata(&directory).doing("look at the directory of iceoryx2")?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        let what =
            format!("{} is not a directory of this user alone: remove it", directory.display());
        return Err(Fault::Unable(what));
    }
    let mut config = Config::default();
    let path = Path::new(directory.as_os_str().as_bytes());
    config.global.set_root_path(&path.doing("name the directory of iceoryx2")?);
    config.global.prefix = FileName::new(b"siga_peers_").expect("it is a name of a file");
    Ok(config)
}

impl End for Iceoryx2End {
    #[inline(always)]
    fn send(&mut self, bytes: usize, build: impl FnMut(&mut [u8])) -> Result<(), Fault> {
        self.publish(bytes, build)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, _: usize, mut read: impl FnMut(usize, &[u8])) -> Result<bool, Fault> {
        loop {
            if let Some(sample) = self.subscriber.receive().doing("receive a sample")? {
                read(0, sample.payload());
                return Ok(!sample.payload().is_empty());
            }
            match &self.events {
                // Notified since we have looked, it returns at once.
                Some(events) => {
                    events.listener.blocking_wait(|_| {}).doing("wait for an event")?;
                }
                None => spin_loop(),
            }
        }
    }

    /// A message of no bytes is the last one.
    fn finish(&mut self) -> Result<(), Fault> {
        self.publish(0, |_| {})
    }

    fn settings(&self) -> BTreeMap<String, u64> {
        [("iceoryx2_queue_messages".to_owned(), self.queue_messages as u64)].into()
    }
}
