//! Guests of a channel that start what the fuzzer says, beside two that do as they should.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::disk_guest(program));
