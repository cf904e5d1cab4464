//! Peers that do what random bytes say, and what the fuzzer has found worth while.
//!
//! A failing program is made as small as it can be, printed, and its seed is added to
//! `hostile.proptest-regressions` beside this file, from where it is run first ever after: commit that with
//! the fix. `PROPTEST_RNG_SEED=N` repeats a whole run, `PROPTEST_CASES=N` makes it longer or shorter. The two
//! that run in threads need not fail again with the same seed.

use std::path::{Path, PathBuf};

use proof::hostile::{
    alone, appc_peer, control_protocol_guest, control_protocol_host, disk_guest, disk_units,
    disk_volume, doorbell_abuse, iucv_peer, lan_peer, lan_registration, line_messages, osa_adapter,
    port_frames, profile_import, reader_scribble, reader_scribble_meanwhile, tcpip_client,
    tcpip_conversation, tcpip_frames, tcpip_service, terminal_client, terminal_server,
    writer_scribble, writer_scribble_meanwhile,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

type Body = fn(&[u8]);

#[test]
fn what_the_fuzzer_has_found_does_no_harm() {
    let bodies: [(&str, Body); 22] = [
        ("reader_scribble", reader_scribble),
        ("writer_scribble", writer_scribble),
        ("doorbell_abuse", doorbell_abuse),
        ("control_protocol_host", control_protocol_host),
        ("control_protocol_guest", control_protocol_guest),
        ("appc_peer", appc_peer),
        ("iucv_peer", iucv_peer),
        ("lan_peer", lan_peer),
        ("lan_registration", lan_registration),
        ("port_frames", port_frames),
        ("profile_import", profile_import),
        ("tcpip_frames", tcpip_frames),
        ("tcpip_conversation", tcpip_conversation),
        ("tcpip_service", tcpip_service),
        ("tcpip_client", tcpip_client),
        ("line_messages", line_messages),
        ("osa_adapter", osa_adapter),
        ("disk_guest", disk_guest),
        ("disk_units", disk_units),
        ("disk_volume", disk_volume),
        ("terminal_server", terminal_server),
        ("terminal_client", terminal_client),
    ];
    for (target, body) in bodies {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
        // Bodies count descriptors.
        let files: Vec<PathBuf> = alone(|| {
            let files = std::fs::read_dir(&corpus).expect("a corpus for each target");
            files.map(|file| file.expect("a file").path()).collect()
        });
        assert!(!files.is_empty(), "{} is empty", corpus.display());
        for file in files {
            // Shown if it fails.
            println!("{}", file.display());
            body(&alone(|| std::fs::read(file).expect("a file")));
        }
    }
}

/// As many cases as usual, at most so many, or ten times that where tests may take long.
fn config(cases: u32) -> ProptestConfig {
    let cases_max = if proof::is_long() { cases.saturating_mul(10) } else { cases };
    config_of(ProptestConfig::default().cases.min(cases_max))
}

fn config_of(cases: u32) -> ProptestConfig {
    let beside = FileFailurePersistence::WithSource("proptest-regressions");
    ProptestConfig { cases, failure_persistence: Some(Box::new(beside)), ..Default::default() }
}

fn program() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..200), vec(any::<u8>(), 1000..4000)]
}

proptest! {
    #![proptest_config(config(u32::MAX))]

    #[test]
    fn reader_is_not_harmed_by_a_writer_that_scribbles(program in program()) {
        reader_scribble(&program);
    }

    #[test]
    fn writer_is_not_harmed_by_a_reader_that_scribbles(program in program()) {
        writer_scribble(&program);
    }

    #[test]
    fn nobody_is_harmed_by_doorbells_that_are_abused(program in program()) {
        doorbell_abuse(&program);
    }

    #[test]
    fn nobody_is_harmed_by_guests_that_say_anything_to_the_host(program in program()) {
        control_protocol_host(&program);
    }

    #[test]
    fn guest_is_not_harmed_by_a_host_that_says_anything(program in program()) {
        control_protocol_guest(&program);
    }

    #[test]
    fn conversation_is_not_harmed_by_a_partner_that_says_anything(program in program()) {
        appc_peer(&program);
    }

    #[test]
    fn path_of_iucv_is_not_harmed_by_a_side_that_says_anything(program in program()) {
        iucv_peer(&program);
    }

    #[test]
    fn member_of_a_lan_is_not_harmed_by_another_that_sends_anything(program in program()) {
        lan_peer(&program);
    }

    #[test]
    fn nobody_is_harmed_by_guests_that_register_anything(program in program()) {
        lan_registration(&program);
    }

    #[test]
    fn members_and_device_get_from_a_port_what_was_sent_and_nothing_else(program in program()) {
        port_frames(&program);
    }

    #[test]
    fn profile_of_any_bytes_is_refused_or_becomes_a_right_system_file(program in program()) {
        profile_import(&program);
    }

    #[test]
    fn line_driver_is_not_harmed_by_a_partner_that_sends_asks_and_answers_anything(program in program()) {
        line_messages(&program);
    }

    #[test]
    fn adapter_and_honest_guests_are_not_harmed_by_a_guest_and_a_wire_that_bring_anything(program in program()) {
        osa_adapter(&program);
    }

    #[test]
    fn server_of_terminals_is_not_harmed_by_a_client_that_says_anything(program in program()) {
        terminal_server(&program);
    }

    #[test]
    fn terminal_is_not_harmed_by_a_server_that_says_anything(program in program()) {
        terminal_client(&program);
    }

    #[test]
    fn stack_is_not_harmed_by_members_that_send_anything(program in program()) {
        tcpip_frames(&program);
    }

    #[test]
    fn tcpip_machine_and_its_honest_client_are_not_harmed_by_a_client_that_asks_for_anything(program in program()) {
        tcpip_service(&program);
    }

    #[test]
    fn client_is_not_harmed_by_a_tcpip_machine_and_clients_that_say_anything(program in program()) {
        tcpip_client(&program);
    }

    #[test]
    fn conversation_of_two_stacks_goes_on_or_fails_whatever_becomes_of_its_frames(program in program()) {
        tcpip_conversation(&program);
    }
}

proptest! {
    // Each starts a thread and runs all its verbs.
    #![proptest_config(config(64))]

    #[test]
    fn reader_is_not_harmed_by_a_writer_that_scribbles_meanwhile(
        writer in program(),
        reader in program(),
    ) {
        reader_scribble_meanwhile(&writer, &reader);
    }

    #[test]
    fn writer_is_not_harmed_by_a_reader_that_scribbles_meanwhile(
        writer in program(),
        reader in program(),
    ) {
        writer_scribble_meanwhile(&writer, &reader);
    }
}

proptest! {
    // Each has volumes and their caches: one program in eight.
    #![proptest_config(config_of(ProptestConfig::default().cases.div_ceil(8)))]

    #[test]
    fn nobody_is_harmed_by_guests_of_a_channel_that_start_anything(program in program()) {
        disk_guest(&program);
    }

    #[test]
    fn nobody_is_harmed_by_information_units_of_any_kind(program in program()) {
        disk_units(&program);
    }

    #[test]
    fn volume_file_of_any_bytes_is_refused_or_read_and_never_made_worse(program in program()) {
        disk_volume(&program);
    }
}
