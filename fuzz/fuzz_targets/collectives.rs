#![no_main]

libfuzzer_sys::fuzz_target!(init: halocline_fuzz::seed("collectives"), |bytes: &[u8]| {
    halocline_fuzz::guarded(halocline_fuzz::collectives, bytes);
});
