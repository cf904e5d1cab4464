//! A line driver whose partner sends, asks and answers what the fuzzer says.
#![no_main]

libfuzzer_sys::fuzz_target!(|program: &[u8]| proof::hostile::line_messages(program));
