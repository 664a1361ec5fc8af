// Sends each text as a message: producer NAME_SERVER TOPIC TEXT...
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{os.Args[1]})),
		producer.WithGroupName("example-producer"))
	if err != nil {
		log.Fatal(err)
	}
	if err := sender.Start(); err != nil {
		log.Fatal(err)
	}
	for _, text := range os.Args[3:] {
		message := primitive.NewMessage(os.Args[2], []byte(text)).WithTag("TagA")
		result, err := sender.SendSync(context.Background(), message)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result.String())
	}
	if err := sender.Shutdown(); err != nil {
		log.Fatal(err)
	}
}
