#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| werkruf_llm::properties::responses_encode(bytes));
