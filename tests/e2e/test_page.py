"""The page of --http in headless Chromium: what it shows of a job that trains and loses a rank, and
once the driver is gone."""

import signal

import browser
import dp
from dp import ENDLESS


@browser.needed
class Page(dp.Case):
    def open(self, driver):
        url = driver.wait_line(r"to be looked at: (\S+)").group(1)
        self.browser = browser.Browser()
        self.addCleanup(self.browser.close)
        self.browser.ask("/url", {"url": url})

    def text(self, element):
        return self.browser.run(f"document.getElementById('{element}').textContent")

    def wait_text(self, element, words):
        return dp.wait_for(f"{words!r} in #{element}", lambda: words in self.text(element))

    def test_loss(self):
        driver = self.driver("--local", "--http", "0", "--inject", "kill:rank1@step40", n=3,
                             job=ENDLESS)
        self.open(driver)
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

    def test_incident(self):
        """A rank that hangs: its incident appears by itself, and is read by the keyboard alone."""
        driver = self.driver("--local", "--http", "0", "--inject", "delay:rank1@step40:3600s", n=2,
                             job={**ENDLESS, "cluster.deadlines.step": 5})
        self.open(driver)
        self.wait_text("incidents", "step 40")
        self.wait_text("incidents", "rank 1")
        self.browser.run("document.querySelector('#incidents summary').focus()")
        self.browser.press("\ue007")
        self.wait_text("incidents", "kept others waiting")
        self.wait_text("incidents", "collectives of rank 0")
        self.assertNotIn("handed over", self.text("incidents"))
        self.browser.press("\t", "\t", "\ue007")  # past the table of ranks, which scrolls
        self.wait_text("incidents", "handed over")
        self.assertEqual(self.browser.ask("/se/log", {"type": "browser"}), [])
        self.browser.close()  # in the middle of a stream: the job goes on
        n_epochs = len(self.events("epoch"))
        dp.wait_for("two epochs", lambda: len(self.events("epoch")) >= n_epochs + 2)
        driver.signal(signal.SIGTERM)
        self.assert_exit(driver, dp.STOPPED)

    def test_done(self):
        """The page that stays open tells of the last step, although no status did."""
        driver = self.driver("--local", "--http", "0", *dp.freezing(1, 40), n=2,
                             job={**dp.SMALL, **dp.PATIENT})
        self.open(driver)
        self.wait_text("done", "of 64")
        self.wake(self.local_pid(1))
        self.wait_text("stage", "done")
        self.assert_exit(driver, dp.FINISHED)
        self.assertEqual(self.text("done"), "step 64 of 64, epoch 2 of 2")

    def rows(self):
        return self.browser.run(
            "[...document.querySelectorAll('#ranks tr')].map(r => r.firstChild.textContent)")


if __name__ == "__main__":
    dp.main()
