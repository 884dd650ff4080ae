"""The page of --http in headless Chromium: what it shows of a job that trains and loses a rank, and
once the driver is gone."""

import signal

import browser
import dp
from dp import ENDLESS


@browser.needed
class Page(dp.Case):
    def text(self, element):
        return self.browser.run(f"document.getElementById('{element}').textContent")

    def wait_text(self, element, words):
        return dp.wait_for(f"{words!r} in #{element}", lambda: words in self.text(element))

    def test_loss(self):
        driver = self.driver("--local", "--http", "0", "--inject", "kill:rank1@step40", n=3,
                             job=ENDLESS)
        url = driver.wait_line(r"to be looked at: (\S+)").group(1)
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)
        self.browser.ask("/url", {"url": url})
        self.wait_event("recovered")
        self.wait_text("events", "recovered")
        self.wait_text("events", "lost")
        self.wait_text("stage", "train")
        dp.wait_for("three rows", lambda: self.rows() == ["0", "1", "2"])
        dp.wait_for("curves", lambda: self.browser.run("document.images[0].naturalWidth") > 0)
        self.assertRegex(self.text("done"), r"^step [\d,]+ of [\d,]+, epoch \d+")
        self.assertRegex(self.text("legend"), r"steps that count [\d.]+ %.*lost [\d.]+ %")
        self.wait_text("job", "data:")
        self.browser.run("(document.getElementById('filter').value = 'no such host', "
                         "document.getElementById('filter').dispatchEvent(new Event('input')))")
        self.assertEqual((self.rows(), self.text("shown")), ([], "0 of 3"))
        self.assertEqual(self.browser.ask("/se/log", {"type": "browser"}), [])
        driver.signal(signal.SIGKILL)
        self.wait_text("link", "No connection")

    def rows(self):
        return self.browser.run(
            "[...document.querySelectorAll('#ranks tr')].map(r => r.firstChild.textContent)")


if __name__ == "__main__":
    dp.main()
